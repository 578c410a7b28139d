package reconciler

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/keyed"
	"github.com/fairlead/fairlead/source"
)

// pass applies the plan once, as far as possible, and returns when to run again.
func (l *Loop) pass() time.Duration {
	snapshot := l.snapshot.Load()
	failures := map[string]error{}
	if l.missed > 0 {
		l.held = nil // what a failed call did is unknown
	}
	l.missed, l.passed = 0, time.Now()
	l.beginChange()
	defer l.endChange()
	if l.held == nil && l.DataPlane != nil {
		if err := l.list(); err != nil {
			failures["data plane"] = err
		}
	}
	node := l.Node
	node.Drain = l.nextStage(snapshot)
	planning := time.Now()
	p, probe, forget := l.planner.Build(l.input(snapshot, node), l.transitions())
	l.step(planning, Step{Kind: StepPlan})
	l.planned = p
	l.claim(p)
	l.logConflicts(p)
	if l.Prober != nil {
		l.Prober.Change(probe, forget)
	}
	if l.DSRAgent != nil {
		if err := l.setDSRAgent(snapshot, p); err != nil {
			failures["DSR agent"] = err
		}
	}
	l.setBalancers(snapshot, failures)
	if l.began.IsZero() {
		l.began = time.Now()
	}
	prepare := l.prepare(snapshot, failures)
	begin := l.mayBegin(snapshot)
	var next time.Duration
	if l.held != nil {
		next = l.close(p, failures)
	} else if l.DataPlane != nil {
		planned := p.Prefixes()
		l.withdrawBut(func(r route.Route) bool { return planned[r.Prefix] }, failures) // whatever the state of the data plane
	}
	if l.lookForConfirmations() {
		next = first(next, confirmPace) // what was removed before did not know of them
	}
	l.failures += uint64(len(failures))
	l.publish(p, snapshot, failures)
	if l.settled && !l.begun && l.held != nil {
		l.announce(l.advertisable(p), failures)
		l.publish(p, snapshot, failures)
	}
	next = l.sooner(l.nextPass(next, failures))
	return first(next, first(prepare, begin))
}

// nodes returns the addresses of load balancers and others that no Service may have, as
// far as they are known, with their owners.
func (l *Loop) nodes(s *source.Snapshot) map[netip.Addr]string {
	nodes := map[netip.Addr]string{}
	if l.Taken != nil {
		maps.Copy(nodes, l.Taken())
	}
	for _, a := range s.Balancers {
		nodes[a] = "another balancer"
		if name := s.Names[a]; name != "" {
			nodes[a] = "balancer " + name
		}
	}
	for _, a := range l.Own {
		nodes[a] = "this balancer, " + l.Node.Name
	}
	return nodes
}

// close brings advertisements and data plane in line with the plan, in the only safe
// order. It returns when a lingering frontend is due, if there is one.
func (l *Loop) close(p *plan.Plan, failures map[string]error) time.Duration {
	// Withdraw before removing. Routes that change stay as they are until then.
	keep := byPrefix(l.advertisable(p))
	l.withdrawBut(func(r route.Route) bool { return keep[r.Prefix].Prefix.IsValid() }, failures)
	wanted := l.upsert(p, failures)
	l.lookForConfirmations()
	due := l.remove(p, wanted, failures)
	// Advertise only what is programmed.
	l.announce(l.advertisable(p), failures)
	if at := l.keys.Due(); !at.IsZero() {
		due = first(due, max(time.Until(at), time.Millisecond))
	}
	return due
}

// first returns the shorter of two waits, where 0 means none.
func first(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// withdrawBut withdraws all advertised routes except those that stay.
func (l *Loop) withdrawBut(stays func(route.Route) bool, failures map[string]error) {
	var rest []route.Route
	for _, r := range l.announced {
		if stays(r) {
			rest = append(rest, r)
		}
	}
	if len(rest) < len(l.announced) {
		l.announce(rest, failures)
	}
}

// advertisable returns the routes of the plan that may be advertised now: those already
// advertised as long as any of their frontends is programmed, others once all of their
// frontends are programmed or rejected, or have failed repeatedly. While the load
// balancer must not begin (mayBegin), no route may be advertised.
func (l *Loop) advertisable(p *plan.Plan) []route.Route {
	if !l.open {
		return nil
	}
	var routes []route.Route
	announced := byPrefix(l.announced)
	for _, r := range p.Routes {
		held, pending := 0, 0
		for _, k := range r.Frontends {
			if _, ok := l.held[k]; ok {
				held++
			} else if !l.isExhausted(k) {
				pending++
			}
		}
		if held > 0 && (pending == 0 || announced[r.Prefix].Prefix.IsValid()) {
			routes = append(routes, r.Route)
		}
	}
	return routes
}

// byPrefix indexes routes by prefix, which is unique.
func byPrefix(routes []route.Route) map[netip.Prefix]route.Route {
	all := make(map[netip.Prefix]route.Route, len(routes))
	for _, r := range routes {
		all[r.Prefix] = r
	}
	return all
}

// announce passes routes to the announcer if they have changed, or again if the last call
// failed. It passes an empty list once everything that can be programmed is: the
// announcer may have found routes of an earlier process.
func (l *Loop) announce(routes []route.Route, failures map[string]error) {
	if l.Announcer == nil || l.unsaid.Err == nil && slices.Equal(routes, l.asked) && (l.begun || !l.settled) {
		return
	}
	l.begun, l.asked = true, routes
	began := time.Now()
	err := l.Announcer.Set(routes)
	l.stepRoutes(began, l.announced, routes, err)
	l.unsaid.Settle(err, time.Now())
	l.note(announced(l.announced, routes, l.unsaid.Err, failures))
}

// announced returns what is advertised after a Set, and records what failed. If the error
// is not per prefix, everything is as before.
func announced(before, routes []route.Route, err error, failures map[string]error) []route.Route {
	if err == nil {
		return routes
	}
	failed, rest := advertise.RouteErrors(err)
	for p, err := range failed {
		failures["route "+p.String()] = err
	}
	if len(rest) > 0 {
		failures["announcer"] = errors.Join(rest...)
		return before
	}
	return slices.SortedFunc(maps.Values(merge(before, routes, failed)), route.Route.Compare)
}

// merge returns the routes by prefix, except that failed ones stay as before.
func merge(before, routes []route.Route, failed map[netip.Prefix]error) map[netip.Prefix]route.Route {
	now := byPrefix(routes)
	for p := range failed {
		delete(now, p)
	}
	for _, r := range before {
		if failed[r.Prefix] != nil {
			now[r.Prefix] = r
		}
	}
	return now
}

// note records and logs what is now advertised.
func (l *Loop) note(routes []route.Route) {
	since := make(map[route.Route]time.Time, len(routes))
	before, now := byPrefix(l.announced), byPrefix(routes)
	for _, r := range routes {
		was, there := before[r.Prefix]
		at := l.since[was]
		switch {
		case !there:
			at = time.Now()
			l.recordRoute(event.RouteAdvertised, was, r)
			l.Log.Info("route advertised", "prefix", r.Prefix, "nextHop", r.NextHop, "attributes", r.Attributes.String())
		case was != r:
			l.recordRoute(event.RouteChanged, was, r)
			l.Log.Info("route attributes changed", "prefix", r.Prefix, "nextHop", r.NextHop, "attributes", r.Attributes.String())
		}
		since[r] = at
	}
	for _, r := range l.announced {
		if !now[r.Prefix].Prefix.IsValid() {
			l.recordRoute(event.RouteWithdrawn, r, route.Route{})
			l.Log.Info("route withdrawn", "prefix", r.Prefix, "nextHop", r.NextHop)
		}
	}
	l.announced, l.since = routes, since
}

// upsert writes every frontend that differs from the plan and returns the keys in the
// plan.
func (l *Loop) upsert(p *plan.Plan, failures map[string]error) map[service.Key]bool {
	wanted, now := map[service.Key]bool{}, time.Now()
	var todo []desired.Frontend
	for i := range p.Frontends {
		want := p.Frontends[i].Want
		if want == nil {
			continue
		}
		wanted[want.Key] = true
		if l.holdsAs(*want) {
			l.keys.Done(want.Key)
		} else if l.keys.Ready(want.Key, *want, now) {
			todo = append(todo, *want)
		}
	}
	if r, ok := l.DataPlane.(dataplane.Reserver); ok && len(todo) > 1 {
		if err := r.Reserve(todo); err != nil {
			l.Log.Warn("failed to make room for new frontends, will make it one by one", "frontends", len(todo), "error", err)
		}
	}
	for _, want := range todo {
		began := time.Now()
		err := l.DataPlane.Upsert(want)
		l.stepFrontend(began, StepProgram, want.Key, err)
		if l.settle(want.Key, want, err, failures) {
			l.held[want.Key] = want
			l.Log.Debug("frontend programmed", "frontend", want.Key, "backends", len(want.Backends))
		}
	}
	return wanted
}

// holdsAs reports whether the data plane has a frontend as desired, in every respect that
// it stores.
func (l *Loop) holdsAs(want desired.Frontend) bool {
	held, ok := l.held[want.Key]
	if !ok {
		return false
	}
	if !held.Same(want) {
		c, ok := l.DataPlane.(dataplane.Canonical)
		if !ok || !c.Canonical(held).Same(c.Canonical(want)) {
			return false
		}
	} else if held.Shares(want) {
		return true
	}
	l.held[want.Key] = want // found immediately next time
	return true
}

// settle records the result of a call for a frontend, and reports whether it succeeded.
func (l *Loop) settle(k service.Key, want desired.Frontend, err error, failures map[string]error) bool {
	l.keys.Set(k, want, err, time.Now())
	switch {
	case isUnsupported(err):
		l.Log.Warn("frontend rejected", "frontend", k, "error", err)
		l.recordRejected(k, err)
	case err != nil:
		failures[k.String()] = err
		l.missed++
	}
	return err == nil
}

func isUnsupported(err error) bool { return errors.Is(err, dataplane.ErrUnsupported) }

// maxAttempts is the number of failures after which a frontend no longer prevents the
// routes that it shares with others from being advertised.
const maxAttempts = 3

// isExhausted reports whether a frontend is rejected or has failed maxAttempts times.
func (l *Loop) isExhausted(k service.Key) bool {
	s := l.keys.State(k)
	return s.Phase == keyed.Rejected || s.Tries >= maxAttempts
}

// maxLoggedFailures limits how many failures of one pass are logged: if there is no room for
// very many frontends, each of them fails.
const maxLoggedFailures = 10

// nextPass logs failures and returns the time until the next pass: when one is due or, if
// something other than a frontend failed, after an exponential backoff.
func (l *Loop) nextPass(due time.Duration, failures map[string]error) time.Duration {
	if len(failures) > l.missed { // frontends have their own retries
		l.tries++
		due = first(due, keyed.Backoff(l.tries))
	} else {
		l.tries = 0
	}
	if due == 0 {
		due = time.Hour // until notified
	}
	for i, what := range slices.Sorted(maps.Keys(failures)) {
		if i == maxLoggedFailures {
			l.Log.Error("more failures while applying the plan, see the status", "calls", len(failures)-i)
			break
		}
		l.Log.Error("failed to apply the plan, will retry", "what", what, "error", failures[what], "retryIn", due)
	}
	return due
}

// list reads the actual state of the data plane.
func (l *Loop) list() error {
	frontends, err := l.DataPlane.List()
	if err != nil {
		return fmt.Errorf("reading the programmed state: %w", err)
	}
	l.held = make(map[service.Key]desired.Frontend, len(frontends))
	for _, f := range frontends {
		l.held[f.Key] = f
	}
	return nil
}

func (l *Loop) health(t health.Target) health.State {
	if l.Prober == nil {
		return health.Up
	}
	return l.Prober.State(t)
}

// transitions returns the addresses of targets whose health may have changed.
func (l *Loop) transitions() map[netip.Addr]bool {
	if l.Prober == nil {
		return map[netip.Addr]bool{}
	}
	return l.Prober.Transitions()
}

// holds returns the state of a frontend's backends in the data plane.
func (l *Loop) holds(k service.Key) map[netip.AddrPort]health.State {
	f, is := l.held[k]
	if !is {
		return nil
	}
	states := make(map[netip.AddrPort]health.State, len(f.Backends))
	for _, b := range f.Backends {
		states[b.Addr] = health.Up
		if b.Draining() {
			states[b.Addr] = health.Down
		}
	}
	return states
}

// everyFrontend returns all frontends except those in conflict, with every backend of
// their Service regardless of its health, as the DSR agent needs them.
func everyFrontend(p *plan.Plan) []desired.Frontend {
	var all []desired.Frontend
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.State == plan.Conflict || len(f.Backends) == 0 {
			continue
		}
		all = append(all, desired.FrontendOf(f.Service, f.Key, f.All()))
	}
	return all
}
