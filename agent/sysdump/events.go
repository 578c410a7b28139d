package sysdump

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/core/event"
)

// recent is how far back events count for findings, and often how many of them.
const (
	recent = time.Hour
	often  = 3
)

// repeated are types of events of which several mean that something does not stay as it is.
var repeated = map[event.Type]string{
	event.AgentStarted:     "the agent restarted",
	event.PeerDown:         "the session ended",
	event.BFDDown:          "BFD lost the peer",
	event.BackendUnhealthy: "the backend failed its checks",
	event.L2MemberSilent:   "the member was silent",
}

// events reports what happened often, and what has not ended.
func (f *findings) events(all []event.Event, now time.Time) {
	f.tables(all)
	f.crashes(all, now)
	f.repeated(all, now)
}

// tableFixes has what makes a table larger.
var tableFixes = map[string]string{
	"frontends": "increase --max-frontends", "backends": "increase --max-backends",
	"flows": "increase --max-flows", "dsr-flows": "increase --max-flows",
	"proxy-frontends": "increase --proxy-max-frontends", "proxy-endpoints": "increase --proxy-max-targets",
}

// tables reports tables that are nearly full.
func (f *findings) tables(all []event.Event) {
	filling := map[string]string{}
	for _, e := range all {
		switch e.Type {
		case event.TableFilling:
			filling[e.Field] = e.Cause
		case event.TableRelieved:
			delete(filling, e.Field)
		}
	}
	for _, table := range slices.Sorted(maps.Keys(filling)) {
		f.add(Finding{Severity: doctor.Degraded, Object: "table " + table, Cause: "it is nearly full: " + filling[table], Fix: cmp.Or(tableFixes[table], "see FairleadTableFilling in docs/troubleshooting.md"), From: "fairlead get events --type TableFilling"})
	}
}

// crashes reports recent starts of an agent that had not stopped.
func (f *findings) crashes(all []event.Event, now time.Time) {
	killed, running := 0, false
	for _, e := range all {
		if e.Type == event.AgentStarted && running && now.Sub(e.Last) <= recent {
			killed++
		}
		running = e.Type != event.AgentStopped
	}
	if killed > 0 {
		f.add(Finding{Severity: doctor.Degraded, Object: "agent", Cause: fmt.Sprintf("killed or crashed in the last hour: %d", killed), Fix: "see the end of its earlier log, and the kernel's log for OOM", From: "fairlead get events --type AgentStarted"})
	}
}

// repeated reports what happened often.
func (f *findings) repeated(all []event.Event, now time.Time) {
	type key struct {
		event.Type
		object string
	}
	count := map[key]int{}
	cause := map[key]string{}
	var order []key
	for _, e := range all {
		if now.Sub(e.Last) > recent || repeated[e.Type] == "" {
			continue
		}
		k := key{e.Type, e.Object.String()}
		if count[k] == 0 {
			order = append(order, k)
		}
		count[k] += e.Count
		cause[k] = e.Cause
	}
	for _, k := range order {
		if count[k] >= often {
			f.add(Finding{Severity: doctor.Degraded, Object: k.object, Cause: fmt.Sprintf("%s %d times in the last hour; the last time: %s", repeated[k.Type], count[k], cause[k]),
				Fix: "fairlead get events --type " + string(k.Type), From: "fairlead get events --since 1h"})
		}
	}
}
