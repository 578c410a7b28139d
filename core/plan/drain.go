package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/route"
)

// Stage is how far a balancer is on its way out.
type Stage string

// The stages, in their order. From each of them a balancer that need not drain
// any more is back at Serving at once.
const (
	Serving Stage = "serving"
	// Kept: it ought to drain, but is the last balancer that the source knows of.
	Kept Stage = "kept"
	// Asking: routes are announced as ones to avoid; packets are served as ever.
	Asking Stage = "asking"
	// Withdrawn: no route is announced any more; what still comes is served.
	Withdrawn Stage = "withdrawn"
	// Drained: no flow is left that needs this balancer, or there was no more time.
	Drained Stage = "drained"
)

// Leaves says whether a balancer of this stage announces nothing.
func (s Stage) Leaves() bool { return s == Withdrawn || s == Drained }

// Drain is how a balancer leaves.
type Drain struct {
	Stage Stage
	// Why are the reasons to drain, in words; none where it need not.
	Why []string
	Avoid
}

// Avoid is what tells routers to avoid a route (RFC 8326). The zero value leaves
// routes as they are: there is then nothing to ask routers for.
type Avoid struct {
	// Communities are united with those of the route.
	Communities route.Communities
	// MED replaces one that is lower; 0 replaces none.
	MED uint32
}

// avoidedPreference is the local preference of a route to avoid: the least that
// is not taken for none given. Routers of our own AS heed it, whether they know
// RFC 8326 or not.
const avoidedPreference = 1

// mark gives the attributes that a route has while it is asked to be avoided.
func (a Avoid) mark(as route.Attributes) route.Attributes {
	if a == (Avoid{}) {
		return as
	}
	more, _ := a.Communities.Parse() // checked where they are set
	as.Communities = as.Communities.With(more...)
	as.MED = max(as.MED, a.MED)
	as.LocalPreference = avoidedPreference
	return as
}

// DrainInput is all that the next Stage depends on.
type DrainInput struct {
	// Why are the reasons to drain; none for none.
	Why []string
	// Last says that all reasons may be set aside, as no other balancer would
	// be left.
	Last bool
	// In is for how long the present Stage has been.
	In time.Duration
	// Notice is for how long routers are asked before routes go, Linger how long
	// packets may be on their way after, and Timeout for how long flows are then
	// waited for.
	Notice, Linger, Timeout time.Duration
	// Announces says that there are routes, Remembers that there are flows that
	// would break if this balancer were not there.
	Announces, Remembers bool
	// Unconfirmed says that somebody has not confirmed that routes are gone, and is
	// waited for: packets may still come.
	Unconfirmed bool
	// Told says that the other balancers can know that this one drains: before
	// that they would take the packets of its flows for nobody's. It is waited for
	// until NoticeLimit.
	Told        bool
	NoticeLimit time.Duration
	// Hurry waits for nothing but Linger.
	Hurry bool
}

// Next gives the stage that follows, which may be the same.
func (s Stage) Next(in DrainInput) Stage {
	switch {
	case len(in.Why) == 0:
		return Serving
	case in.Last:
		return Kept
	}
	switch s {
	case Asking:
		if in.Hurry || in.In >= in.Notice && (!in.Remembers || in.Told || in.In >= in.NoticeLimit) {
			return Withdrawn
		}
		return Asking
	case Withdrawn:
		left := in.In - in.Linger
		if left >= 0 && (in.Hurry || !in.Unconfirmed && (left >= in.Timeout || !in.Remembers && !in.Announces)) {
			return Drained
		}
		return Withdrawn
	case Drained:
		return Drained
	}
	if in.Announces || in.Remembers {
		return Asking
	}
	return Withdrawn
}

// refuseDraining says of a prefix why it is not announced by one that drains.
func (p *Plan) refuseDraining(d Drain) {
	p.Refusals = slices.DeleteFunc(p.Refusals, func(r Refusal) bool { return r.Rule == RuleAttributes })
	for _, r := range p.Routes {
		p.refuse(r.Prefix, RuleDraining, "this balancer drains: "+strings.Join(d.Why, "; "))
	}
	p.Routes = nil
}
