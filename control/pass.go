package control

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/plan"
	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
)

// pass closes the gap between the plan and the world once, as far as it can,
// and says when to look again.
func (l *Loop) pass() time.Duration {
	snapshot := l.snapshot.Load()
	failures := map[string]error{}
	if l.held == nil && l.DataPlane != nil {
		if err := l.list(); err != nil {
			failures["data plane"] = err
		}
	}
	node := l.Node
	node.Drain = l.nextStage(snapshot)
	in := plan.Input{Services: snapshot.Services, Health: l.health, Held: l.holds, Node: node, Nodes: l.nodes(snapshot)}
	if a := snapshot.Announcements; a != nil {
		in.Announce = a.Offers
	}
	p := plan.Build(in)
	if l.Prober != nil {
		l.Prober.Set(p.Targets)
	}
	if l.ServerHalf != nil {
		if err := l.setServerHalf(snapshot, p); err != nil {
			failures["server half"] = err
		}
	}
	l.setBalancers(snapshot, failures)
	prepare := l.prepare(snapshot, failures)
	begin := l.mayBegin(snapshot)
	var next time.Duration
	if l.held != nil {
		next = l.close(p, failures)
	} else if node.Drain.Stage.Leaves() {
		l.announce(nil, failures) // whatever the data plane says
	}
	l.publish(p, slices.Concat(snapshot.Problems, l.unnamed(snapshot, p)), failures)
	next = l.sooner(l.nextPass(next, failures))
	for _, due := range []time.Duration{prepare, begin} {
		if due > 0 {
			next = min(next, due)
		}
	}
	return next
}

// nodes gives the addresses of the balancers' nodes, as far as they are known.
func (l *Loop) nodes(s *source.Snapshot) map[netip.Addr]bool {
	nodes := make(map[netip.Addr]bool, len(l.Own)+len(s.Balancers))
	for _, a := range slices.Concat(l.Own, s.Balancers) {
		nodes[a] = true
	}
	return nodes
}

// close brings announcements and data plane to the plan in the one safe order,
// and says when a lingering frontend is due, if one is.
func (l *Loop) close(p *plan.Plan, failures map[string]error) time.Duration {
	// Withdraw before removing. What is to change is announced as it was until then.
	wished := byPrefix(l.wished(p))
	l.announce(slices.DeleteFunc(slices.Clone(l.announced), func(r announce.Route) bool { return !wished[r.Prefix].Prefix.IsValid() }), failures)
	wanted := l.upsert(p, failures)
	due := l.remove(p, wanted, failures)
	// Announce only what is held.
	l.announce(l.wished(p), failures)
	return due
}

// hopeless is after how many tries a frontend that cannot be written, though
// others can, keeps no route of theirs from being announced.
const hopeless = 3

// wished gives the routes of the plan that may be announced now: those that
// are announced already as long as they lead to anything, others once all
// that they lead to is held or refused, or has failed again and again. While the
// load balancer must not begin (mayBegin) there are none.
func (l *Loop) wished(p *plan.Plan) []announce.Route {
	if !l.open {
		return nil
	}
	var routes []announce.Route
	announced := byPrefix(l.announced)
	for _, r := range p.Routes {
		held, pending := 0, 0
		for _, k := range r.Frontends {
			if _, ok := l.held[k]; ok {
				held++
			} else if _, refused := l.refused[k]; !refused && l.failed[k] < hopeless {
				pending++
			}
		}
		if held > 0 && (pending == 0 || announced[r.Prefix].Prefix.IsValid()) {
			routes = append(routes, r.Route)
		}
	}
	return routes
}

// byPrefix gives routes by their prefixes, of which each has one.
func byPrefix(routes []announce.Route) map[netip.Prefix]announce.Route {
	all := make(map[netip.Prefix]announce.Route, len(routes))
	for _, r := range routes {
		all[r.Prefix] = r
	}
	return all
}

func (l *Loop) announce(routes []announce.Route, failures map[string]error) {
	if l.Announcer == nil || slices.Equal(routes, l.announced) {
		return
	}
	if err := l.Announcer.Set(routes); err != nil {
		failures["announcer"] = err
		return
	}
	since := make(map[announce.Route]time.Time, len(routes))
	before, now := byPrefix(l.announced), byPrefix(routes)
	for _, r := range routes {
		was, there := before[r.Prefix]
		at := l.since[was]
		switch {
		case !there:
			at = time.Now()
			l.Log.Info("route announced", "prefix", r.Prefix, "nextHop", r.NextHop, "attributes", r.Attributes.String())
		case was != r:
			l.Log.Info("route announced otherwise", "prefix", r.Prefix, "nextHop", r.NextHop, "attributes", r.Attributes.String())
		}
		since[r] = at
	}
	for _, r := range l.announced {
		if !now[r.Prefix].Prefix.IsValid() {
			l.Log.Info("route withdrawn", "prefix", r.Prefix, "nextHop", r.NextHop)
		}
	}
	l.announced, l.since = routes, since
}

// upsert writes every frontend that is not held as the plan wants it, and
// gives the keys that the plan wants.
func (l *Loop) upsert(p *plan.Plan, failures map[string]error) map[service.Key]bool {
	wanted := map[service.Key]bool{}
	for i := range p.Frontends {
		want := p.Frontends[i].Want
		if want == nil {
			continue
		}
		wanted[want.Key] = true
		delete(l.lingering, want.Key)
		if l.holdsAs(*want) {
			delete(l.refused, want.Key)
			delete(l.failed, want.Key)
			continue
		}
		if r, ok := l.refused[want.Key]; ok && r.wish.Same(*want) {
			continue
		}
		l.upsertOne(*want, failures)
	}
	return wanted
}

// holdsAs says that the data plane holds a frontend as it is wanted, as far as it
// keeps what is.
func (l *Loop) holdsAs(want dataplane.Frontend) bool {
	held, ok := l.held[want.Key]
	if !ok || held.Same(want) {
		return ok
	}
	c, ok := l.DataPlane.(dataplane.Canonical)
	if !ok || !c.Canonical(held).Same(c.Canonical(want)) {
		return false
	}
	l.held[want.Key] = want // to be seen at once next time
	return true
}

func (l *Loop) upsertOne(want dataplane.Frontend, failures map[string]error) {
	err := l.DataPlane.Upsert(want)
	switch {
	case errors.Is(err, dataplane.ErrUnsupported):
		l.refused[want.Key] = refusal{want, err}
		l.Log.Warn("frontend refused", "frontend", want.Key, "error", err)
	case err != nil:
		failures[want.Key.String()] = err
		l.failed[want.Key]++
	default:
		delete(l.refused, want.Key)
		delete(l.failed, want.Key)
		l.held[want.Key] = want
		l.Log.Debug("frontend written", "frontend", want.Key, "backends", len(want.Backends))
	}
}

// remove deletes what the plan does not want: at once where its address is
// still announced for others, else after Linger. It says when the next one is
// due, 0 for none.
func (l *Loop) remove(p *plan.Plan, wanted map[service.Key]bool, failures map[string]error) time.Duration {
	var next time.Duration
	maps.DeleteFunc(l.refused, func(k service.Key, _ refusal) bool { return !wanted[k] })
	maps.DeleteFunc(l.failed, func(k service.Key, _ int) bool { return !wanted[k] })
	wished := l.wished(p)
	for k := range l.held {
		if wanted[k] {
			continue
		}
		due, ok := l.lingering[k]
		if !ok {
			due = time.Now()
			if l.Announcer != nil && !leadsTo(wished, k.VIP) {
				due = due.Add(l.Linger)
			}
			l.lingering[k] = due
		}
		if wait := time.Until(due); wait > 0 {
			if next == 0 || wait < next {
				next = wait
			}
			continue
		}
		if err := l.DataPlane.Delete(k); err != nil {
			failures[k.String()] = err
			continue
		}
		delete(l.held, k)
		delete(l.lingering, k)
	}
	return next
}

func leadsTo(routes []announce.Route, vip netip.Addr) bool {
	return slices.ContainsFunc(routes, func(r announce.Route) bool { return r.Prefix.Contains(vip) })
}

// tellFailures is how many failures of one pass are logged: where there is no room
// for very many frontends each of them fails.
const tellFailures = 10

// nextPass logs what failed and gives the time until the next pass.
func (l *Loop) nextPass(due time.Duration, failures map[string]error) time.Duration {
	if len(failures) == 0 {
		l.retry = 0
		if due == 0 {
			return time.Hour // until woken
		}
		return due
	}
	l.retry = min(max(2*l.retry, retryFirst), retryLast)
	l.held = nil // what a failed call has left is not known
	for i, what := range slices.Sorted(maps.Keys(failures)) {
		if i == tellFailures {
			l.Log.Error("more of the plan cannot be applied; the status names it", "calls", len(failures)-i)
			break
		}
		l.Log.Error("cannot apply the plan; trying again", "what", what, "error", failures[what], "in", l.retry)
	}
	if due == 0 {
		return l.retry
	}
	return min(due, l.retry)
}

// list reads what the data plane really holds.
func (l *Loop) list() error {
	frontends, err := l.DataPlane.List()
	if err != nil {
		return fmt.Errorf("reading what the data plane holds: %w", err)
	}
	l.held = make(map[service.Key]dataplane.Frontend, len(frontends))
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

// holds gives as what the data plane holds a backend of a frontend.
func (l *Loop) holds(k service.Key, addr netip.AddrPort) health.State {
	backends := l.held[k].Backends
	switch i := slices.IndexFunc(backends, func(b service.Backend) bool { return b.Addr == addr }); {
	case i < 0:
		return health.Unknown
	case backends[i].Draining():
		return health.Down
	}
	return health.Up
}

// everyFrontend gives all frontends but those in conflict, with every backend
// that their Service names, whatever its health: what the server half needs.
func everyFrontend(p *plan.Plan) []dataplane.Frontend {
	var all []dataplane.Frontend
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.State == plan.Conflict || len(f.Backends) == 0 {
			continue
		}
		var backends []service.Backend
		for _, b := range f.Backends {
			backends = append(backends, b.Backend)
		}
		all = append(all, dataplane.FrontendOf(f.Service, f.Key, backends))
	}
	return all
}
