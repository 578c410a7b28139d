package reconciler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/keyed"
	"github.com/fairlead/fairlead/source"
)

// View is the state of the loop at the end of a pass. It is immutable once published.
type View struct {
	Plan     *plan.Plan
	Problems []problem.Problem
	// Stale lists objects that are used in their last valid version.
	Stale []source.Stale
	// Held contains the frontends in the data plane.
	Held map[service.Key]desired.Frontend
	// Refused contains the frontends that it rejects, and why.
	Refused map[service.Key]string
	// Announced contains the advertised routes, each with the time since which it is.
	Announced map[route.Route]time.Time
	// Withdrawing lists routes that are withdrawn but not confirmed. Leaving contains
	// frontends that are still programmed although the plan does not include them.
	Withdrawing []advertise.Withdrawal
	Leaving     map[service.Key]Leaving
	// Failures contains the calls that failed and will be retried, by object: a frontend,
	// "route 10.1.1.0/24" and so on.
	Failures map[string]error
	// Failed counts the calls that have failed since the start.
	Failed uint64
	// Drain is the state of the drain, or nil.
	Drain *Drain
	// Loaded means that the source has published at least once.
	Loaded bool
	// Waits is what the first complete pass still waits for. Empty once everything that
	// can be programmed has been, and its routes have been advertised.
	Waits string
}

// Drain is the state of a drain.
type Drain struct {
	Stage plan.Stage
	Why   []string
	// Since is when the drain began, Entered when its Stage did.
	Since, Entered time.Time
	// Flows is the number of tracked flows as of the last count.
	Flows int
}

// View returns the latest View.
func (l *Loop) View() *View { return l.view.Load() }

// waits returns what the first complete pass waits for, or "" if it is done.
func (l *Loop) waits(p *plan.Plan, failures map[string]error) string {
	if l.settled {
		return ""
	}
	frontends := map[string]bool{}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		_, held := l.held[f.Key]
		frontends[f.Key.String()] = true
		switch {
		case l.DataPlane == nil || held || l.isExhausted(f.Key):
		case f.State == plan.AwaitingHealth:
			return fmt.Sprintf("%s waits for the first health checks of its backends", f.Key)
		case f.Want != nil:
			return fmt.Sprintf("%s is not held yet", f.Key)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(failures)) {
		if !frontends[what] {
			return fmt.Sprintf("%s: %s", what, failures[what])
		}
	}
	if !l.open {
		return "it waits until other nodes can know of this load balancer (--balancers)"
	}
	l.settled = true
	return ""
}

func (l *Loop) publish(p *plan.Plan, s *source.Snapshot, failures map[string]error) {
	failures = maps.Clone(failures)
	refused := map[service.Key]string{}
	for k, s := range l.keys.All() {
		if s.Phase == keyed.Rejected {
			refused[k] = s.Err.Error()
		} else {
			failures[k.String()] = s.Err
		}
	}
	v := &View{
		Plan: p, Problems: slices.Concat(s.Problems, l.unnamed(s, p), unusedQuarantines(s, p)), Stale: s.Stale, Failures: failures, Failed: l.failures, Loaded: true, Waits: l.waits(p, failures),
		Held: maps.Clone(l.held), Refused: refused, Announced: maps.Clone(l.since),
		Withdrawing: l.withdrawing, Leaving: make(map[service.Key]Leaving, len(l.leaving)),
	}
	for k, f := range l.leaving {
		v.Leaving[k] = *f
	}
	l.recordFailures(failures)
	l.recordStates(l.view.Load().Plan, p)
	l.recordQuarantines(l.view.Load().Plan, p)
	if d := &l.drain; len(d.why) > 0 {
		v.Drain = d.shown()
	}
	l.view.Store(v)
}
