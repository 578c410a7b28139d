package gather

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/agent/sysdump"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/profile"
	"github.com/fairlead/fairlead/internal/sleep"
)

// daemon is an agent, reflector or router, and what it answered.
type daemon struct {
	sysdump.Daemon
	// pid is its process, 0 if that is in another PID namespace; flags are those of its
	// command line.
	pid   int
	flags map[string][]string
	// manifests are the files of its folder.
	manifests map[string][]byte
	// texts are files of the archive by name, missed what could not be collected.
	texts  map[string][]byte
	missed map[string]error
}

// folder returns the daemon's folder in the archive.
func (d *daemon) folder() string { return safe(strings.TrimSuffix(filepath.Base(d.Socket), ".sock")) }

// maxAnswer limits an answer in bytes; a variable for tests.
var maxAnswer int = limit.Item

// maxExplained limits how many Services are explained.
const maxExplained = 200

// collect asks the daemon for everything.
func (d *daemon) collect(ctx context.Context, o Options) {
	if d.Err != nil {
		return
	}
	if d.Status, d.Err = status.FetchOnly(ctx, d.Socket, selection.Selection{Tables: true}); d.Err != nil {
		return
	}
	d.keep("status.json", d.Status)
	if r, err := status.FetchReady(ctx, d.Socket); err == nil {
		d.keep("ready.json", r)
	}
	d.ask(ctx, "drops.json", api.DropsPath, nil)
	d.ask(ctx, "flows.jsonl", api.FlowsPath, url.Values{"limit": {"1000"}})
	d.ask(ctx, "events.jsonl", journal.Path, journal.Params(event.Query{}, false))
	for dec := json.NewDecoder(bytes.NewReader(d.texts["events.jsonl"])); ; {
		var e event.Event
		if dec.Decode(&e) != nil {
			break
		}
		d.Events = append(d.Events, e)
	}
	d.explain(ctx)
	d.read(ctx, o.Since)
	d.observe(ctx, o.Observe)
}

// keep adds a value as a file.
func (d *daemon) keep(name string, v any) {
	if text, err := json.Marshal(v); err == nil {
		d.texts[name] = text
	}
}

// ask adds an answer as a file.
func (d *daemon) ask(ctx context.Context, name, path string, params url.Values) {
	if len(params) > 0 {
		path += "?" + params.Encode()
	}
	body, err := socket.Ask(ctx, d.Socket, http.MethodGet, path, nil)
	if err != nil {
		return // its role has no such thing
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, int64(maxAnswer)+1))
	if err == nil && len(text) > maxAnswer {
		text, err = text[:maxAnswer], fmt.Errorf("only the first %d MiB are here", maxAnswer>>20)
	}
	if err != nil {
		d.missed[name] = err
	}
	d.texts[name] = text
}

// explain explains Services in detail, those with something wrong first.
func (d *daemon) explain(ctx context.Context) {
	names := suspects(d.Status)
	if len(names) == 0 {
		return
	}
	s, err := status.FetchOnly(ctx, d.Socket, selection.Selection{Services: names})
	if err != nil {
		d.missed["explain.json"] = err
		return
	}
	details := map[string]status.Service{}
	for _, svc := range s.Services {
		details[svc.ID] = svc
	}
	for i, svc := range d.Status.Services {
		if detailed, ok := details[svc.ID]; ok {
			d.Status.Services[i] = detailed
		}
	}
	for _, name := range names {
		if chains, err := explain.Services(s, name); err == nil { // otherwise it was deleted meanwhile
			d.Chains = append(d.Chains, chains...)
		}
	}
	d.keep("explain.json", d.Chains)
}

// suspects returns the Services to explain: those that are not as they should be, and then
// others.
func suspects(s status.Status) []string {
	var bad, good []string
	for _, svc := range s.Services {
		fine := svc.StaleSince.IsZero() && !slices.ContainsFunc(svc.Frontends, func(f status.Frontend) bool {
			return f.Reason != "" || slices.ContainsFunc(f.Backends, func(b status.Backend) bool { return !b.Passes() })
		})
		if fine {
			good = append(good, svc.ID)
		} else {
			bad = append(bad, svc.ID)
		}
	}
	all := append(bad, good...)
	return all[:min(len(all), maxExplained)]
}

// observe takes profiles, and compares counters of dropped packets before and after.
func (d *daemon) observe(ctx context.Context, during time.Duration) {
	began := time.Now()
	d.ask(ctx, "cpu.pprof", profile.Path+"cpu", url.Values{"seconds": {fmt.Sprint(during.Seconds())}})
	sleep.For(ctx, during-time.Since(began)) // an older release has no profiles
	for _, name := range []string{"heap", "goroutine", "mutex", "block"} {
		d.ask(ctx, name+".pprof", profile.Path+name, nil)
	}
	if d.Status.DataPlane == nil && d.Status.DSRAgent == nil {
		return
	}
	s, err := status.Fetch(ctx, d.Socket)
	if err != nil {
		d.missed["counters"] = err
		return
	}
	d.Dropped = grown(dropped(d.Status), dropped(s))
}

// dropped returns the counts of dropped packets.
func dropped(s status.Status) map[string]uint64 {
	all := map[string]uint64{}
	if s.DataPlane != nil {
		maps.Copy(all, s.DataPlane.Drops)
	}
	if s.DSRAgent != nil {
		maps.Copy(all, s.DSRAgent.Counters)
	}
	return all
}
