package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/route"
)

// Stage is the progress of draining a load balancer.
type Stage string

// Drain stages in order. From each of them, a load balancer that no longer needs to drain
// returns to Serving immediately.
const (
	Serving Stage = "serving"
	// Deferred: it should drain, but is the last active load balancer known to the source.
	Deferred Stage = "deferred"
	// Notifying: the other load balancers learn that this one drains; routes and packets
	// are as before.
	Notifying Stage = "notifying"
	// GracefulShutdown: routes are advertised as least preferred; packets are served as before.
	GracefulShutdown Stage = "graceful-shutdown"
	// Withdrawn: no route is advertised; packets that still arrive are served.
	Withdrawn Stage = "withdrawn"
	// Drained: no flow needs this load balancer, or the timeout has passed.
	Drained Stage = "drained"
)

// Leaves reports whether a load balancer in this stage advertises nothing.
func (s Stage) Leaves() bool { return s == Withdrawn || s == Drained }

// Drain is the drain state of a load balancer.
type Drain struct {
	Stage Stage
	// Why lists the reasons to drain. Empty: do not drain.
	Why []string
	Avoid
}

// Avoid marks a route as least preferred (RFC 8326). The zero value leaves routes
// unchanged, so that there is no graceful shutdown stage.
type Avoid struct {
	// Communities are added to those of the route.
	Communities route.Communities
	// MED replaces a lower MED of the route. 0: unchanged.
	MED uint32
}

// avoidedPreference is the local preference of a route to avoid: the lowest value that is
// not mistaken for unset. Routers in our AS honor it whether or not they support RFC
// 8326.
const avoidedPreference = 1

// mark returns the attributes of a route during graceful shutdown.
func (a Avoid) mark(as route.Attributes) route.Attributes {
	if a == (Avoid{}) {
		return as
	}
	more, _ := a.Communities.Parse() // validated where they are set
	as.Communities = as.Communities.With(more...)
	as.MED = max(as.MED, a.MED)
	as.LocalPreference = avoidedPreference
	return as
}

// DrainInput contains everything that the next Stage depends on.
type DrainInput struct {
	// Why lists the reasons to drain. Empty: do not drain.
	Why []string
	// Last means that all reasons can be ignored because no other load balancer would be
	// left.
	Last bool
	// In is the time spent in the current stage.
	In time.Duration
	// Notice is how long routes stay in graceful shutdown before they are withdrawn,
	// Linger how long packets may still be in transit after that, and Timeout how long to
	// wait for flows after that.
	Notice, Linger, Timeout time.Duration
	// Announces means that there are routes, Remembers that there are flows that would
	// break without this load balancer.
	Announces, Remembers bool
	// Unconfirmed means that some peer has not confirmed the withdrawal, and that the
	// load balancer waits for it: packets may still arrive.
	Unconfirmed bool
	// Notified means that the other load balancers can know that this one drains. Before
	// that, they would treat packets of its flows as unknown, and routers send these as
	// soon as they prefer other routes. The load balancer waits for it until NoticeLimit.
	Notified    bool
	NoticeLimit time.Duration
	// Hurry skips every wait except Linger.
	Hurry bool
}

// Next returns the next stage, which may be the same.
func (s Stage) Next(in DrainInput) Stage {
	switch {
	case len(in.Why) == 0:
		return Serving
	case in.Last:
		return Deferred
	}
	switch s {
	case Notifying:
		if in.Hurry || !in.Remembers || in.Notified || in.In >= in.NoticeLimit {
			return GracefulShutdown
		}
		return Notifying
	case GracefulShutdown:
		if in.Hurry || in.In >= in.Notice {
			return Withdrawn
		}
		return GracefulShutdown
	case Withdrawn:
		left := in.In - in.Linger
		if left >= 0 && (in.Hurry || !in.Unconfirmed && (left >= in.Timeout || !in.Remembers && !in.Announces)) {
			return Drained
		}
		return Withdrawn
	case Drained:
		return Drained
	}
	switch {
	case in.Remembers:
		return Notifying
	case in.Announces:
		return GracefulShutdown
	}
	return Withdrawn
}

// refuseDraining removes all routes, and records for each prefix that the load balancer
// drains.
func (p *Plan) refuseDraining(d Drain) {
	p.Refusals = slices.DeleteFunc(p.Refusals, func(r Refusal) bool { return r.Rule == RuleAttributeConflict })
	for _, r := range p.Routes {
		p.refuse(r.Prefix, RuleDraining, "this load balancer is draining: "+strings.Join(d.Why, "; "))
	}
	p.Routes = nil
}
