package reconciler

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

// Change is a pass that changed something, step by step.
type Change struct {
	// Learned is when the source delivered what the pass is for. It is zero if the source has
	// delivered nothing since the pass before: then probes, retries or time are the cause.
	Learned      time.Time
	Began, Ended time.Time
	Steps        []Step
	// Omitted is the number of further steps of frontends.
	Omitted int
}

// StepKind is what a step does.
type StepKind string

// The kinds of steps, in the order of a pass.
const (
	StepPlan      StepKind = "plan"
	StepWithdraw  StepKind = "withdraw"  // routes, which leaves the others
	StepProgram   StepKind = "program"   // a frontend, in the kernel
	StepRemove    StepKind = "remove"    // a frontend, from the kernel
	StepAdvertise StepKind = "advertise" // all routes
)

// Step is a part of a Change.
type Step struct {
	Kind         StepKind
	Began, Ended time.Time
	// Frontend and Service are those of StepProgram and StepRemove. The Service of a frontend
	// that lingered is not known any more.
	Frontend service.Key
	Service  service.ID
	// Routes are those that are new or different, or that are withdrawn.
	Routes []route.Route
	Err    error
}

// maxSteps limits the steps of a Change: at the start, all frontends are programmed.
const maxSteps = 256

// beginChange begins to record a pass, if somebody wants to know.
func (l *Loop) beginChange() {
	l.change = nil
	if l.OnChange == nil {
		return
	}
	l.change = &Change{Began: l.passed}
	if at := l.learned.Swap(nil); at != nil {
		l.change.Learned = *at
	}
}

// endChange delivers what was recorded, unless the pass only planned.
func (l *Loop) endChange() {
	if c := l.change; c != nil && slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Kind != StepPlan }) {
		c.Ended = time.Now()
		l.OnChange(*c)
	}
	l.change = nil
}

// step records a step that began at a time and ends now.
func (l *Loop) step(began time.Time, s Step) {
	c := l.change
	if c == nil {
		return
	}
	if len(c.Steps) >= maxSteps && (s.Kind == StepProgram || s.Kind == StepRemove) {
		c.Omitted++
		return
	}
	s.Began, s.Ended = began, time.Now()
	c.Steps = append(c.Steps, s)
}

// stepFrontend records a call for a frontend.
func (l *Loop) stepFrontend(began time.Time, kind StepKind, k service.Key, err error) {
	if l.change == nil {
		return
	}
	id, _ := l.serviceOf(k)
	l.step(began, Step{Kind: kind, Frontend: k, Service: id, Err: err})
}

// stepRoutes records that routes are advertised, and not those before.
func (l *Loop) stepRoutes(began time.Time, before, now []route.Route, err error) {
	if l.change == nil {
		return
	}
	s := Step{Kind: StepAdvertise, Err: err, Routes: without(now, before)}
	if len(s.Routes) == 0 && len(now) < len(before) {
		s.Kind, s.Routes = StepWithdraw, without(before, now)
	}
	l.step(began, s)
}

// without returns the routes that are not among others.
func without(routes, others []route.Route) (rest []route.Route) {
	known := make(map[route.Route]bool, len(others))
	for _, r := range others {
		known[r] = true
	}
	for _, r := range routes {
		if !known[r] {
			rest = append(rest, r)
		}
	}
	return rest
}
