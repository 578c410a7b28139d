package reconciler_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/reconciler/record"
	"github.com/fairlead/fairlead/source/manifest"
)

// faultRate is the default rate of failing calls to the data plane.
const faultRate = 0.1

// stage is the environment of a story: an agent's components around its loop.
type stage struct {
	t      *testing.T
	files  map[string][]byte
	folder string
	plane  *fake.DataPlane // outlives the agents, like the kernel
	faulty *fake.Faulty
	probes *probes
	state  string // the directory of state that survives both agent and kernel

	announcer *advertise.Fake
	loop      *reconciler.Loop
	end       func()
	node      *nodeSource // outlives the agents
	sky       *sky        // nil without a cloud
	cloud     advertise.Announcer

	mu      sync.Mutex
	refused string
	journal []string
	drains  []string // drain stages
	events  event.List
}

func newStage(t *testing.T, files []txtar.File, inTheCloud bool) *stage {
	w := &stage{
		t: t, files: map[string][]byte{}, folder: t.TempDir(),
		node: &nodeSource{}, state: t.TempDir(),
		probes: &probes{states: map[string]health.State{}, changed: make(chan struct{}, 1)},
	}
	for _, f := range files {
		w.files[f.Name] = f.Data
	}
	if inTheCloud {
		w.sky = newSky(t)
	}
	w.boot()
	w.start()
	t.Cleanup(func() { w.end() })
	return w
}

// boot provides an empty kernel.
func (w *stage) boot() {
	w.plane = fake.New()
	w.faulty = fake.NewFaulty(watched{w.plane, w}, faultRate, 1)
}

// start starts an agent on the current state of the data plane.
func (w *stage) start() {
	log := slog.New(slog.NewTextHandler(w.t.Output(), nil))
	state := statedir.Open(w.state, log)
	folder := manifest.New(w.folder, log)
	folder.Persist(state)
	folder.Balancers(service.ID{Namespace: "lb", Name: "balancers"})
	w.announcer = &advertise.Fake{}
	hurry := make(chan struct{})
	var announcer advertise.Announcer = w.announcer
	if w.cloud = nil; w.sky != nil {
		w.cloud = w.sky.announcer(w.t)
		announcer = advertise.Together{w.announcer, advertise.Only(route.ModeCloud, w.cloud)}
	}
	w.loop = reconciler.New(reconciler.Config{
		Source: w.node.around(folder), Prober: w.probes, DataPlane: w.faulty, Announcer: announcer,
		Claims: record.New(state, log), Own: []netip.Addr{netip.MustParseAddr("10.0.0.105")},
		Taken: func() map[netip.Addr]string {
			return map[netip.Addr]string{netip.MustParseAddr("10.0.0.109"): "BGP peer rack"}
		},
		Node:   plan.Node{Name: "lb1", NextHop4: netip.MustParseAddr("10.0.0.105"), NextHop6: netip.MustParseAddr("2001:db8::105")},
		Linger: 50 * time.Millisecond, Resync: time.Minute, Log: log, DrainNotice: storyNotice, Hurry: hurry,
		Avoid: plan.Avoid{Communities: route.CommunitiesOf(route.GracefulShutdown), MED: 100},
		OnDrain: func(d reconciler.Drain) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.drains = append(w.drains, strings.TrimSpace(fmt.Sprintf("%s %s", d.Stage, strings.Join(d.Why, "; "))))
		},
		Events: func(e event.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			e.Time = time.Now()
			w.events.Add(e)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	loop, above := w.loop, w.cloud
	go func() { ended <- loop.Run(ctx) }()
	w.end = sync.OnceFunc(func() {
		close(hurry)
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the loop gave up: %v", err)
		}
		if above != nil {
			if err := above.Close(); err != nil {
				w.t.Error(err)
			}
		}
		state.Close()
	})
}

// do executes a command.
func (w *stage) do(words []string) error {
	args := words[1:]
	switch {
	case words[0] == "write" && len(args) == 1:
		return w.write(args[0], args[0])
	case words[0] == "write" && len(args) == 2:
		return w.write(args[0], args[1])
	case words[0] == "remove" && len(args) == 1:
		return os.Remove(filepath.Join(w.folder, args[0]))
	case words[0] == "health" && len(args) == 2:
		return w.probes.say(args[0], args[1])
	case words[0] == "refuse" && len(args) == 1:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.refused = args[0]
		return nil
	case words[0] == "faults" && len(args) == 1:
		rate, err := strconv.ParseFloat(args[0], 64)
		w.faulty.SetRate(rate)
		w.probes.wake()
		return err
	case words[0] == "node" && len(args) > 0:
		return w.node.say(args)
	case words[0] == "drain" && len(args) <= 1:
		w.loop.OrderDrain(len(args) == 0)
		return nil
	case words[0] == "cloud" && len(args) == 1 && w.sky != nil:
		return w.sky.say(args[0])
	case words[0] == "kill" && len(args) == 0:
		w.sky.line.cut.Store(true)
		w.end()
		w.start()
		return nil
	case words[0] == "restart" && len(args) == 0:
		w.end()
		w.start()
		return nil
	case words[0] == "stop" && len(args) == 0:
		w.end()
		return nil
	case words[0] == "start" && len(args) == 0:
		w.start()
		return nil
	case words[0] == "reboot" && len(args) == 0:
		w.end()
		w.boot()
		w.start()
		return nil
	}
	return fmt.Errorf("no such command, or not with %d words behind it", len(args))
}

// write atomically puts a file of the archive into the directory, like editors do.
func (w *stage) write(file, as string) error {
	text, ok := w.files[file]
	if !ok {
		return fmt.Errorf("the story has no file %s", file)
	}
	next := filepath.Join(w.folder, ".next")
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(w.folder, as))
}

// questions returns the queries by name.
func (w *stage) questions() map[string]func(args []string) string {
	return map[string]func(args []string) string{
		"frontends": func([]string) string { return w.frontends() },
		"routes":    func([]string) string { return w.routes() },
		"status":    func([]string) string { return w.status() },
		"writes":    func([]string) string { return w.writes() },
		"packet":    w.packet,
		"events":    w.recorded,
		"led":       func([]string) string { return w.sky.leads() },
		"drains": func([]string) string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return strings.Join(w.drains, "\n")
		},
	}
}

func (w *stage) frontends() string {
	held, _ := w.plane.List() // in memory: cannot fail
	var b strings.Builder
	for _, f := range held {
		fmt.Fprintf(&b, "%s %s %s:", f.Key, f.Method, f.Scheduler)
		for _, s := range f.Backends {
			fmt.Fprintf(&b, " %s", s.Addr)
			if s.Weight != 1 {
				fmt.Fprintf(&b, " (weight %d)", s.Weight)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (w *stage) routes() string {
	var b strings.Builder
	for _, r := range w.announcer.Routes() {
		fmt.Fprintf(&b, "%s\n", r)
	}
	return b.String()
}

// status returns what fairlead status and its subcommands print, without values that
// change over time.
func (w *stage) status() string {
	s := status.Agent{View: w.loop.View, DataPlane: w.faulty, Announcer: w.announcer, Cloud: w.cloud}.Gather(time.Now())
	var b strings.Builder
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			serving := 0
			for _, backend := range f.Backends {
				if backend.InService && backend.ProgrammedWeight > 0 {
					serving++
				}
			}
			line := strings.TrimSpace(fmt.Sprintf("%s %s %s %d/%d %s", svc.ID, f.Key(), f.State, serving, len(f.Backends), f.Reason))
			if !svc.StaleSince.IsZero() {
				line += " (stale)"
			}
			b.WriteString(line + "\n")
		}
	}
	for _, r := range s.Routes {
		if !r.Advertised {
			fmt.Fprintf(&b, "%s is not announced: %s\n", r.Prefix, sinceWhen.ReplaceAllString(r.Reason, ""))
		}
	}
	if s.Drain != nil {
		fmt.Fprintf(&b, "%s: %s\n", s.Drain.Stage, strings.Join(s.Drain.Reasons, "; "))
	}
	for _, f := range s.Leaving {
		fmt.Fprintf(&b, "%s is held: %s\n", f.Frontend, sinceWhen.ReplaceAllString(f.Reason, ""))
	}
	for _, o := range s.Stale {
		fmt.Fprintf(&b, "stale: %s: %s\n", o.Where, o.Object)
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "problem: %s\n", sinceWhen.ReplaceAllString(p.String(), ""))
	}
	return b.String()
}

// sinceWhen matches the parts of a reason that vary.
var sinceWhen = regexp.MustCompile(` since [0-9TZ:-]+| 127\.0\.0\.1:[0-9]+`)

func (w *stage) writes() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(w.journal)), "\n")
}

// recorded returns the events of these types, each once.
func (w *stage) recorded(types []string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, e := range w.events.All(event.Query{}) {
		if slices.Contains(types, string(e.Type)) {
			line := fmt.Sprintf("%s %s %s %s: %s -> %s: %s %s", e.Severity, e.Type, e.Object, e.Field, e.From, e.To, sinceWhen.ReplaceAllString(e.Cause, ""), e.Services)
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "\n")
}

func (w *stage) forgetWrites() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = nil
}

// packet sends a packet of 60 bytes.
func (w *stage) packet(args []string) string {
	if len(args) < 2 {
		return "usage: packet CLIENT VIP [syn]"
	}
	client, err1 := netip.ParseAddrPort(args[0])
	vip, err2 := netip.ParseAddrPort(args[1])
	if err1 != nil || err2 != nil {
		return fmt.Sprint(err1, err2)
	}
	flow := schedule.Flow{Client: client, Key: service.Key{VIP: vip.Addr(), Port: vip.Port(), Protocol: service.TCP}}
	d, err := w.plane.Forward(flow, slices.Contains(args, "syn"), 60)
	switch {
	case err != nil:
		return "dropped: " + err.Error()
	case len(d.Older) > 0:
		return fmt.Sprintf("to %s, or if that does not know the flow to %s", d.Server, words(d.Older, ", then "))
	}
	return "to " + d.Server.String()
}

// words joins backends.
func words(servers []netip.AddrPort, by string) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.String())
	}
	return strings.Join(all, by)
}

// watched records changes to a data plane and rejects what it is configured to reject.
type watched struct {
	dataplane.DataPlane
	w *stage
}

func (d watched) Upsert(f desired.Frontend) error {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if word := d.w.refused; word == string(f.Method) || word == string(f.Scheduler) {
		return dataplane.Unsupported(f.Key, word)
	}
	d.w.journal = append(d.w.journal, "upsert "+f.Key.String())
	return d.DataPlane.Upsert(f)
}

func (d watched) Delete(k service.Key) error {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.journal = append(d.w.journal, "delete "+k.String())
	return d.DataPlane.Delete(k)
}

// probes is a prober that reports the states that the story sets. The default is up.
type probes struct {
	mu      sync.Mutex
	states  map[string]health.State
	moved   map[netip.Addr]bool // nil: any
	changed chan struct{}
}

func (p *probes) say(server, state string) error {
	known := map[string]health.State{"unknown": health.Unknown, "up": health.Up, "down": health.Down, "removed": health.Removed}
	s, ok := known[state]
	if !ok {
		return fmt.Errorf("%s is no state", state)
	}
	p.mu.Lock()
	if server == "all" {
		clear(p.states)
	}
	p.states[server] = s
	if at, err := netip.ParseAddrPort(server); err == nil && p.moved != nil {
		p.moved[at.Addr()] = true
	} else {
		p.moved = nil // all may have
	}
	p.mu.Unlock()
	p.wake()
	return nil
}

// wake notifies the loop.
func (p *probes) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Change implements reconciler.Prober.
func (p *probes) Change(_, _ []health.Target) {}

// Transitions implements reconciler.Prober.
func (p *probes) Transitions() map[netip.Addr]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := p.moved
	p.moved = map[netip.Addr]bool{}
	return moved
}

// Changed implements reconciler.Prober.
func (p *probes) Changed() <-chan struct{} { return p.changed }

// State implements reconciler.Prober.
func (p *probes) State(t health.Target) health.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range []string{t.Addr.String(), "all"} {
		if s, ok := p.states[name]; ok {
			return s
		}
	}
	return health.Up
}
