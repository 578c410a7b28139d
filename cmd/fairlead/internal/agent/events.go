package agent

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/reconciler/probe"
)

// watchPace is the interval at which lasting states are compared, and the shortest one at
// which the backends of Services are indexed again.
const watchPace = time.Second

// events is the agent's journal, with what it needs to know.
type events struct {
	*daemon.Journal
	loop atomic.Pointer[reconciler.Loop]

	// The Services of each backend in a plan, owned by the journal's goroutine.
	plan    *plan.Plan
	of      map[string][]string
	indexed time.Time

	// The flow table when it was last counted, and the conflicts of a plan, owned by watch.
	flows       []dataplane.Table
	counted     time.Time
	conflicts   []problem.Problem
	conflictsOf *plan.Plan

	// tables is how full the tables were when the watch last looked.
	tables atomic.Pointer[[]dataplane.Table]
}

// openEvents opens the journal in the directory with the agent's state.
func (a *agent) openEvents() {
	a.events = &events{}
	a.events.Journal = daemon.OpenJournal(a.config.Node, a.config.Roles, a.state, a.config.StateDir,
		journal.Config{Services: a.events.services, Added: a.postEvent})
}

// services returns the Services of a backend.
func (e *events) services(of event.Event) []string {
	loop := e.loop.Load()
	if of.Object.Kind != "Backend" || loop == nil {
		return nil
	}
	if p := loop.View().Plan; p != e.plan && time.Since(e.indexed) >= watchPace {
		e.plan, e.of, e.indexed = p, servicesOf(p), time.Now()
	}
	return e.of[of.Object.Name+" "+of.Field]
}

// servicesOf returns the Services of each backend, by its address and check.
func servicesOf(p *plan.Plan) map[string][]string {
	all := map[string][]string{}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		id := f.Service.ID.String()
		for _, b := range f.Backends {
			at := b.Target.Addr.Addr().String() + " " + probe.Field(b.Target)
			if of := all[at]; len(of) == 0 || of[len(of)-1] != id {
				all[at] = append(of, id)
			}
		}
	}
	return all
}

// tablesPace is the interval at which the flow table is counted.
const tablesPace = 30 * time.Second

// lookAtTables returns how full the tables of the data planes are.
func (a *agent) lookAtTables(now time.Time) (all []dataplane.Table) {
	if a.xdp != nil {
		if e := a.events; now.Sub(e.counted) >= tablesPace {
			e.counted = now
			if t, err := a.xdp.FlowTable(); err == nil { // otherwise it is being closed
				e.flows = []dataplane.Table{t}
			}
		}
		all = append(a.xdp.Tables(), a.events.flows...)
	}
	if a.proxy != nil {
		all = append(all, a.proxy.plane.Tables()...)
	}
	a.events.tables.Store(&all)
	return all
}

// measure sets how full the tables were at most a second ago, and durations.
func (a *agent) measure(s *status.Status) {
	if all := a.events.tables.Load(); all != nil {
		s.Tables = slices.Clone(*all)
	}
	if s.DSRAgent != nil {
		s.Tables = append(s.Tables, dataplane.Table{Name: "dsr-flows", Used: s.DSRAgent.Flows, Size: a.dsr.MaxFlows()})
	}
	if a.loop != nil {
		reconciles, probes := a.loop.Durations(), a.prober.Durations()
		s.ReconcileDurations, s.ProbeDurations = &reconciles, &probes
	}
}

// watch records what lasts longer than a moment, until ctx ends.
func (e *events) watch(ctx context.Context, seen func() journal.Seen) {
	w := journal.NewWatch(e.Self().Name, e.Events(event.Query{}))
	for sleep.For(ctx, watchPace) {
		for _, of := range w.Look(seen()) {
			e.Record(of)
		}
	}
}

// seen returns what the watch compares.
func (a *agent) seen() journal.Seen {
	now := time.Now()
	s := journal.Seen{Degraded: a.degraded(), Tables: a.lookAtTables(now), Loaded: true}
	switch {
	case a.loop != nil:
		v := a.loop.View()
		if e := a.events; e.conflictsOf != v.Plan {
			e.conflicts, e.conflictsOf = plan.Conflicts(v.Plan.Frontends), v.Plan
		}
		s.Loaded = v.Loaded
	case a.proxy != nil:
		s.Loaded = a.proxy.loop.View().Loaded
	}
	s.Problems = a.statusSource().Lasting(now, a.events.conflicts)
	return s
}
