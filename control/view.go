package control

import (
	"maps"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plan"
	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
)

// View is what the loop knew and had done at the end of a pass. It is never
// changed after it is published.
type View struct {
	Plan     *plan.Plan
	Problems []source.Problem
	// Held are the frontends as the data plane holds them.
	Held map[service.Key]dataplane.Frontend
	// Refused are those that it cannot hold as wished, and why.
	Refused map[service.Key]string
	// Announced are the routes that are announced, and since when.
	Announced map[announce.Route]time.Time
	// Failures are the calls that failed and will be tried again, by what
	// they were for.
	Failures map[string]error
	// Loaded says that the source has yielded at least once.
	Loaded bool
}

// View gives the latest.
func (l *Loop) View() *View { return l.view.Load() }

func (l *Loop) publish(p *plan.Plan, problems []source.Problem, failures map[string]error) {
	v := &View{
		Plan: p, Problems: problems, Failures: failures, Loaded: true,
		Held: maps.Clone(l.held), Refused: map[service.Key]string{}, Announced: maps.Clone(l.since),
	}
	for k, r := range l.refused {
		v.Refused[k] = r.err.Error()
	}
	l.view.Store(v)
}
