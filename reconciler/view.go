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
	"github.com/fairlead/fairlead/source"
)

// View is what the loop knew and had done at the end of a pass. It is never
// changed after it is published.
type View struct {
	Plan     *plan.Plan
	Problems []problem.Problem
	// Stale are objects that are used as they were.
	Stale []source.Stale
	// Held are the frontends as the data plane holds them.
	Held map[service.Key]desired.Frontend
	// Refused are those that it cannot hold as wished, and why.
	Refused map[service.Key]string
	// Announced are the routes that are announced, and since when.
	Announced map[route.Route]time.Time
	// Withdrawing are routes that are withdrawn, and of which that is not confirmed;
	// Leaving are the frontends that are held though the plan does not want them.
	Withdrawing []advertise.Withdrawal
	Leaving     map[service.Key]Leaving
	// Failures are the calls that failed and will be tried again, by what
	// they were for: a frontend, "route 10.1.1.0/24" and so on.
	Failures map[string]error
	// Drain is how the loop is on its way out; nil where it is not.
	Drain *Drain
	// Loaded says that the source has yielded at least once.
	Loaded bool
	// Waits is what the first whole pass still waits for; empty once all that can
	// be held was held, and all that leads to it announced.
	Waits string
}

// Drain is a loop on its way out.
type Drain struct {
	Stage plan.Stage
	Why   []string
	// Since is when it began, Entered when its Stage did.
	Since, Entered time.Time
	// Flows are those that the data plane remembers, as they were last counted.
	Flows int
}

// View gives the latest.
func (l *Loop) View() *View { return l.view.Load() }

// waits says what the first whole pass waits for; nothing once it is done.
func (l *Loop) waits(p *plan.Plan, failures map[string]error) string {
	if l.settled {
		return ""
	}
	frontends := map[string]bool{}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		_, held := l.held[f.Key]
		_, refused := l.refused[f.Key]
		frontends[f.Key.String()] = true
		switch {
		case l.DataPlane == nil || held || refused || l.isHopeless(f.Key):
		case f.State == plan.AwaitingHealth:
			return fmt.Sprintf("%s waits for the first probes of its servers", f.Key)
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
	v := &View{
		Plan: p, Problems: slices.Concat(s.Problems, l.unnamed(s, p)), Stale: s.Stale, Failures: failures, Loaded: true, Waits: l.waits(p, failures),
		Held: maps.Clone(l.held), Refused: map[service.Key]string{}, Announced: maps.Clone(l.since),
		Withdrawing: l.withdrawing, Leaving: make(map[service.Key]Leaving, len(l.leaving)),
	}
	for k, f := range l.leaving {
		v.Leaving[k] = *f
	}
	for k, r := range l.refused {
		v.Refused[k] = r.err.Error()
	}
	if d := &l.drain; len(d.why) > 0 {
		v.Drain = d.shown()
	}
	l.view.Store(v)
}
