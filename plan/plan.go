// Package plan decides, purely: from the services, what is known of their
// servers' health, and this node it makes the Plan: which frontends to hold,
// which routes to announce, which servers to probe, and a named reason for
// every no. It does nothing about it; control does.
package plan

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/service"
)

// Node is what the plan must know of the balancer it is for.
type Node struct {
	Name string
	// NextHop4 and NextHop6 are announced as the next hop of VIPs of their
	// family; where one is invalid, such VIPs are not announced.
	NextHop4, NextHop6 netip.Addr
	// Only is the one Service that this balancer is for; zero for all that are
	// not dedicated to balancers of their own.
	Only service.ID
	// Weight is what the node is worth among balancers, where nothing else says
	// so; 0: 1.
	Weight uint32
	// Drain is how far it is on its way out.
	Drain Drain
}

// elsewhere says why a Service is left to other balancers; empty where it is not.
func (n Node) elsewhere(s *service.Service) string {
	switch {
	case n.Only != service.ID{} && n.Only != s.ID:
		return fmt.Sprintf("this balancer is for Service %s only", n.Only)
	case n.Only == service.ID{} && s.Dedicated:
		return "the Service is dedicated to balancers of its own, which are started with --only " + s.ID.String()
	}
	return ""
}

// Input is all that a Plan depends on.
type Input struct {
	// Services are sorted by ID.
	Services []*service.Service
	// Health gives what is known of a target.
	Health func(health.Target) health.State
	// Held gives as what the data plane holds a backend now: Up, Down where it
	// gets no new flows, Unknown where it does not. One whose first probe has not
	// ended stays what it was, so that an agent that starts disturbs nothing.
	Held func(service.Key, netip.AddrPort) health.State
	// Announce gives the offers by which this node announces a VIP of a Service;
	// where there are none, why. nil announces all, by the prefixes that Services
	// name themselves.
	Announce func(*service.Service, netip.Addr) ([]announce.Offer, string)
	Node     Node
	// Nodes are addresses of this node and of other balancers, which no Service may
	// have: what is sent to the nodes themselves would be lost.
	Nodes map[netip.Addr]bool
}

// State is what becomes of a frontend.
type State string

// The states of a frontend; only Active and Panic ones are held.
const (
	Active           State = "active"
	Panic            State = "panic"              // every server fails its checks: all are kept
	NoEndpoints      State = "no-endpoints"       // the Service has no server
	NoHealthyBackend State = "no-healthy-backend" // every server fails, and panic is off
	AwaitingHealth   State = "awaiting-health"    // no first probe has ended yet
	Conflict         State = "conflict"           // an older Service has this VIP, port and protocol, or a node the address
	Elsewhere        State = "elsewhere"          // other balancers are for this Service
	Unannounced      State = "unannounced"        // an address that is served only where it is announced is not
)

// Frontend is the decision on one frontend of one Service.
type Frontend struct {
	Service  *service.Service
	Key      service.Key
	PortName string
	State    State
	// Reason says in words why the state is not Active.
	Reason string
	// Backends are all that the Service names, with their health; those that
	// are used are in Want.
	Backends []Backend
	// Want is what the data plane shall hold; nil where it shall not.
	Want *dataplane.Frontend
	// healthy is how many servers take new flows, and local the addresses of
	// those of them that are on this node.
	healthy int
	local   []netip.Addr
	kind    service.AddressKind
}

// before orders frontends by how good their claim to a Key is: by the kind of the
// address, then by the Services' age. One that is not served has none.
func (f *Frontend) before(o *Frontend) int {
	claim := func(f *Frontend) int {
		if f.State == Unannounced {
			return math.MaxInt
		}
		return int(f.kind)
	}
	switch c := cmp.Compare(claim(f), claim(o)); {
	case c != 0:
		return c
	case f.Service == o.Service:
		return 0
	case f.Service.Older(o.Service):
		return -1
	}
	return 1
}

// Backend is one server as the plan sees it.
type Backend struct {
	service.Backend
	Target health.Target
	Health health.State
}

// Route is a route to announce once what it leads to is held.
type Route struct {
	announce.Route
	// Frontends are those that the route leads to, sorted: also those that
	// await their servers' health, whose packets it would bring too early.
	Frontends []service.Key
}

// Refusal is a route that is not announced though its frontends are held, or not
// as somebody wishes, and why.
type Refusal struct {
	Prefix netip.Prefix
	// Rule is what said so, Reason the same in words.
	Rule   Rule
	Reason string
}

// Rule names what kept a route from being announced, or from being announced as
// somebody wishes.
type Rule string

// The rules.
const (
	RuleAnnouncement Rule = "announcement" // no Announcement is for it here
	RuleTerms        Rule = "terms"        // those that are do not have what they ask for
	RuleNextHop      Rule = "no-next-hop"  // the node has no address of that family to announce
	RuleAttributes   Rule = "attributes"   // two wish it announced in different ways
	RuleDraining     Rule = "draining"     // the balancer is on its way out
)

// Plan is a whole decision.
type Plan struct {
	// Frontends are sorted by Key, then by their Service's age: where several
	// Services claim one Key, the first is the one that has it.
	Frontends []Frontend
	// Routes are sorted.
	Routes   []Route
	Refusals []Refusal
	// Targets are the probes to run, each once, in no order.
	Targets []health.Target
}

// Build makes the plan.
func Build(in Input) *Plan {
	p := &Plan{}
	for _, s := range in.Services {
		for i := range s.Frontends {
			p.Frontends = append(p.Frontends, decide(in, s, &s.Frontends[i]))
		}
	}
	slices.SortStableFunc(p.Frontends, func(a, b Frontend) int {
		return cmp.Or(a.Key.Compare(b.Key), a.before(&b))
	})
	p.refuseConflicts(in)
	p.collectTargets()
	p.collectRoutes(in)
	return p
}

// refuseConflicts leaves each Key to the oldest Service that claims it.
func (p *Plan) refuseConflicts(in Input) {
	for i := 1; i < len(p.Frontends); i++ {
		f, before := &p.Frontends[i], &p.Frontends[i-1]
		if f.Key != before.Key || f.State == Unannounced || in.Nodes[f.Key.VIP] {
			continue
		}
		owner := before.Service
		if before.State == Conflict {
			owner = p.owner(f.Key)
		}
		f.State, f.Want = Conflict, nil
		what := "and is older"
		if f.kind > owner.KindOf(f.Key.VIP) {
			what = fmt.Sprintf("as its %s address, which counts before a %s one", owner.KindOf(f.Key.VIP), f.kind)
		}
		f.Reason = fmt.Sprintf("Service %s already has %s %s: give one of the two another address or port",
			owner.ID, f.Key, what)
	}
	p.refuseOverlaps()
}

// refuseOverlaps leaves each port that several ranges have to the oldest
// Service.
func (p *Plan) refuseOverlaps() {
	var ranges []*Frontend
	for i := range p.Frontends {
		if f := &p.Frontends[i]; f.Key.Range() && f.State != Conflict && f.State != Unannounced {
			ranges = append(ranges, f)
		}
	}
	slices.SortStableFunc(ranges, (*Frontend).before)
	for i, f := range ranges {
		for _, o := range ranges[:i] {
			if o.State != Conflict && o.Key.Overlaps(f.Key) {
				f.State, f.Want = Conflict, nil
				f.Reason = fmt.Sprintf("Service %s already has %s and is older: give one of the two other ports", o.Service.ID, o.Key)
				break
			}
		}
	}
}

// owner gives the Service that has a Key.
func (p *Plan) owner(k service.Key) *service.Service {
	i, _ := slices.BinarySearchFunc(p.Frontends, k, func(f Frontend, k service.Key) int { return f.Key.Compare(k) })
	return p.Frontends[i].Service
}

func (p *Plan) collectTargets() {
	seen := map[health.Target]bool{}
	for i := range p.Frontends {
		for _, b := range p.Frontends[i].Backends {
			if s := p.Frontends[i].State; s != Conflict && s != Elsewhere && s != Unannounced && !seen[b.Target] {
				seen[b.Target] = true
				p.Targets = append(p.Targets, b.Target)
			}
		}
	}
}

// decide says what becomes of one frontend, conflicts apart.
func decide(in Input, s *service.Service, sf *service.Frontend) Frontend {
	f := Frontend{Service: s, Key: sf.Key, PortName: sf.PortName, kind: sf.Kind}
	for _, b := range sf.Backends {
		t := target(s, sf, b)
		f.Backends = append(f.Backends, Backend{b, t, in.Health(t)})
	}
	if why := in.Node.elsewhere(s); why != "" {
		f.State, f.Reason = Elsewhere, why
		return f
	}
	if in.Nodes[sf.VIP] {
		f.State = Conflict
		f.Reason = fmt.Sprintf("%s is the address of a balancer's node, whose own traffic would be lost: give the Service another, and keep nodes' addresses out of pools (reserved)", sf.VIP)
		return f
	}
	if why := in.unannounced(s, sf); why != "" {
		f.State, f.Reason = Unannounced, why
		return f
	}
	f.countHealthy(in)
	var used []service.Backend
	used, f.State, f.Reason = choose(s, &f, in.Held)
	if len(used) > 0 {
		want := dataplane.FrontendOf(s, f.Key, used)
		f.Want = &want
	}
	return f
}

// unannounced says why an address is not served here that is served only where it
// is announced; empty where it is. Such addresses nobody has given to the Service
// as a load balancer's: packets for them may be others'.
func (in Input) unannounced(s *service.Service, sf *service.Frontend) string {
	if sf.Kind == service.LoadBalancerAddress || in.Announce == nil {
		return ""
	}
	offers, why := in.Announce(s, sf.VIP)
	if len(offers) > 0 {
		return ""
	}
	return why
}

// countHealthy counts the servers that take new flows, by what the data plane
// holds where no probe has ended yet.
func (f *Frontend) countHealthy(in Input) {
	for _, b := range f.Backends {
		state := b.Health
		if state == health.Unknown {
			state = in.Held(f.Key, b.Addr)
		}
		if state != health.Up || b.Draining() {
			continue
		}
		f.healthy++
		if b.Node != "" && b.Node == in.Node.Name {
			f.local = append(f.local, b.Addr.Addr())
		}
	}
}

// target is how a backend of one of s's frontends is probed.
func target(s *service.Service, f *service.Frontend, b service.Backend) health.Target {
	t := health.Target{Addr: b.Addr, Check: s.Health}
	switch {
	case s.Health.Port != 0:
		t.Addr = netip.AddrPortFrom(b.Addr.Addr(), s.Health.Port)
	case b.Addr.Port() == 0, f.Key.Protocol != service.TCP && deaf(s, b):
		t.Check.Kind = service.CheckNone
	}
	return t
}

// deaf says whether a server of another protocol is not to be asked by TCP: in
// a Service that has both and whose TCP servers are on other ports, the check is
// for them.
func deaf(s *service.Service, b service.Backend) bool {
	mixed := false
	for _, f := range s.Frontends {
		if f.Key.Protocol != service.TCP {
			continue
		}
		mixed = true
		if slices.ContainsFunc(f.Backends, func(o service.Backend) bool { return o.Addr == b.Addr }) {
			return false
		}
	}
	return mixed
}

// choose gives the backends to use, in their order, and the state that makes.
func choose(s *service.Service, f *Frontend, held func(service.Key, netip.AddrPort) health.State) ([]service.Backend, State, string) {
	if len(f.Backends) == 0 {
		return nil, NoEndpoints, "the Service has no ready endpoint: is there an EndpointSlice for it?"
	}
	var good, all []service.Backend
	active, waiting, serving, up, known := 0, 0, 0, 0, false
	for _, b := range f.Backends {
		all = append(all, b.Backend)
		was := held(f.Key, b.Addr)
		known = known || was != health.Unknown
		state := b.Health
		if state == health.Unknown {
			if state = was; state == health.Unknown {
				waiting++
			}
			if state == health.Down && b.Draining() {
				state = health.Up // weight 0 says no more than that
			}
		}
		if !b.Draining() {
			active++
		}
		switch {
		case state == health.Up:
			good = append(good, b.Backend)
			up++
			if !b.Draining() {
				serving++
			}
		case state == health.Down && (waitsFor(f.Key.Protocol) || b.Health == health.Unknown):
			b.Weight = 0
			good = append(good, b.Backend)
		}
	}
	switch {
	case waiting > 0 && !known:
		// A ring of some servers only would send the flows of other balancers
		// astray.
		return nil, AwaitingHealth, fmt.Sprintf("the first health check of %d of %d servers has not ended", waiting, len(all))
	case serving > 0, active == 0 && up > 0:
		return good, Active, ""
	case s.Panic:
		return all, Panic, fmt.Sprintf("none of %d servers passes its %s check: all are kept in service", len(all), s.Health.Kind)
	}
	return nil, NoHealthyBackend, fmt.Sprintf("none of %d servers passes its %s check, and panic mode is off", len(all), s.Health.Kind)
}

// waitsFor says whether the flows of a server that is down stay with it: not
// where nothing tells a client that they are lost.
func waitsFor(p service.Protocol) bool { return p == service.TCP || p == service.SCTP }
