// Package plan decides, purely: from the services, what is known of their
// servers' health, and this node it makes the Plan: which frontends to hold,
// which routes to announce, which servers to probe, and a named reason for
// every no. It does nothing about it; control does.
package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
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
		return "the Service is dedicated to balancers of its own, which are started with --dedicated-service " + s.ID.String()
	}
	return ""
}

// Input is all that a Plan depends on.
type Input struct {
	// Services are sorted by ID.
	Services []*service.Service
	// Health gives what is known of a target.
	Health func(health.Target) health.State
	// Held gives as what the data plane holds the backends of a frontend now: Up, or
	// Down where one gets no new flows; nil where it holds none. A backend whose first
	// probe has not ended stays what it was, so that an agent that starts disturbs
	// nothing. nil: nothing is held.
	Held func(service.Key) map[netip.AddrPort]health.State
	// Owner gives the Service for which a Key was programmed last, if that is known: it
	// keeps the Key against newcomers. nil has the Services' ages decide alone, as where
	// all balancers know them.
	Owner func(service.Key) (service.ID, bool)
	// Announce gives the offers by which this node announces a VIP of a Service;
	// where there are none, why. nil announces all, by the prefixes that Services
	// name themselves.
	Announce func(*service.Service, netip.Addr) ([]route.Offer, string)
	Node     Node
	// Nodes are addresses that no Service may have, and whose they are: "balancer lb2".
	// What is sent to those themselves would be lost.
	Nodes map[netip.Addr]string
}

// State is what becomes of a frontend.
type State string

// The states of a frontend; only Active, Draining and Panic ones are held.
const (
	Active           State = "active"
	Draining         State = "draining"           // every server has the weight 0: open connections stay, new ones are dropped
	Panic            State = "panic"              // every server fails its checks: all are kept
	NoEndpoints      State = "no-endpoints"       // the Service has no server
	NoHealthyBackend State = "no-healthy-backend" // every server fails, and panic is off
	AwaitingHealth   State = "awaiting-health"    // no first probe has ended yet
	Conflict         State = "conflict"           // another Service has this VIP, port and protocol, or a node the address
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
	Want *desired.Frontend
	// healthy is how many servers take new flows, and local the addresses of
	// those of them that are on this node.
	healthy int
	local   []netip.Addr
	kind    service.AddressKind
	// incumbent: the Key was programmed for this Service before.
	incumbent bool
}

// Backend is one server as the plan sees it.
type Backend struct {
	service.Backend
	Target health.Target
	Health health.State
}

// Route is a route to announce once what it leads to is held.
type Route struct {
	route.Route
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
	// Frontends are sorted by Key: where several Services claim one, the first is the
	// one that has it.
	Frontends []Frontend
	// Routes are sorted.
	Routes   []Route
	Refusals []Refusal
	// Targets are the probes to run, each once, in no order.
	Targets []health.Target
}

// Prefixes are those of the routes.
func (p *Plan) Prefixes() map[netip.Prefix]bool {
	all := make(map[netip.Prefix]bool, len(p.Routes))
	for _, r := range p.Routes {
		all[r.Prefix] = true
	}
	return all
}

// Build makes the plan.
func Build(in Input) *Plan {
	p := &Plan{}
	n := 0
	for _, s := range in.Services {
		n += len(s.Frontends)
	}
	p.Frontends = make([]Frontend, 0, n)
	for _, s := range in.Services {
		t := targetsOf(s)
		for i := range s.Frontends {
			p.Frontends = append(p.Frontends, decide(in, s, t, &s.Frontends[i]))
		}
	}
	p.refuseConflicts(in)
	p.collectTargets()
	p.collectRoutes(in)
	return p
}

func (p *Plan) collectTargets() {
	type key struct { // a Target, cheaper to compare
		addr  netip.AddrPort
		check int
	}
	n := 0
	for i := range p.Frontends {
		n += len(p.Frontends[i].Backends)
	}
	p.Targets = make([]health.Target, 0, n)
	seen, checks := make(map[key]bool, n), map[service.HealthCheck]int{}
	var last service.HealthCheck
	id := 0
	for i := range p.Frontends {
		if s := p.Frontends[i].State; s == Conflict || s == Elsewhere || s == Unannounced {
			continue
		}
		for _, b := range p.Frontends[i].Backends {
			if b.Target.Check.Kind == service.CheckNone {
				continue
			}
			if id == 0 || b.Target.Check != last { // of one Service nearly all are alike
				last = b.Target.Check
				if id = checks[last]; id == 0 {
					id = len(checks) + 1
					checks[last] = id
				}
			}
			if k := (key{b.Target.Addr, id}); !seen[k] {
				seen[k] = true
				p.Targets = append(p.Targets, b.Target)
			}
		}
	}
}

// decide says what becomes of one frontend, conflicts apart.
func decide(in Input, s *service.Service, t targets, sf *service.Frontend) Frontend {
	f := Frontend{Service: s, Key: sf.Key, PortName: sf.PortName, kind: sf.Kind, Backends: make([]Backend, len(sf.Backends))}
	known := true
	for i, b := range sf.Backends {
		target, state := t.of(sf, b), health.Up
		if target.Check.Kind != service.CheckNone {
			state = in.Health(target)
		}
		f.Backends[i] = Backend{b, target, state}
		known = known && state != health.Unknown
	}
	if why := in.Node.elsewhere(s); why != "" {
		f.State, f.Reason = Elsewhere, why
		return f
	}
	if whose := in.Nodes[sf.VIP]; whose != "" {
		f.State = Conflict
		f.Reason = fmt.Sprintf("%s is the address of %s, whose own traffic would be lost: give the Service another, and keep such addresses out of pools (reserved)", sf.VIP, whose)
		return f
	}
	if why := in.unannounced(s, sf); why != "" {
		f.State, f.Reason = Unannounced, why
		return f
	}
	var held map[netip.AddrPort]health.State
	if !known && in.Held != nil { // else it makes no difference
		held = in.Held(f.Key)
	}
	f.countHealthy(in, held)
	var used []service.Backend
	used, f.State, f.Reason = choose(s, &f, sf.Backends, held)
	if f.State == NoEndpoints && sf.NoBackends != "" {
		f.Reason = sf.NoBackends
	}
	if len(used) > 0 {
		want := desired.FrontendOf(s, f.Key, used)
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
func (f *Frontend) countHealthy(in Input, held map[netip.AddrPort]health.State) {
	for _, b := range f.Backends {
		state := b.Health
		if state == health.Unknown {
			state = held[b.Addr]
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

// targets says how the backends of a Service are probed.
type targets struct {
	check service.HealthCheck
	// tcp are its TCP servers where it has others, too: in a Service that has both, and
	// whose TCP servers are on other ports, the check is for them. nil: it has not both.
	tcp map[netip.AddrPort]bool
}

func targetsOf(s *service.Service) targets {
	t := targets{check: s.Health}
	isTCP := func(f service.Frontend) bool { return f.Key.Protocol == service.TCP }
	if s.Health.Port != 0 || !slices.ContainsFunc(s.Frontends, isTCP) || !slices.ContainsFunc(s.Frontends, func(f service.Frontend) bool { return !isTCP(f) }) {
		return t
	}
	t.tcp = map[netip.AddrPort]bool{}
	for _, f := range s.Frontends {
		for _, b := range f.Backends {
			if isTCP(f) {
				t.tcp[b.Addr] = true
			}
		}
	}
	return t
}

// of is how a backend of a frontend is probed.
func (t targets) of(f *service.Frontend, b service.Backend) health.Target {
	target := health.Target{Addr: b.Addr, Check: t.check}
	switch {
	case t.check.Port != 0:
		target.Addr = netip.AddrPortFrom(b.Addr.Addr(), t.check.Port)
	case b.Addr.Port() == 0, f.Key.Protocol != service.TCP && t.tcp != nil && !t.tcp[b.Addr]:
		target.Check.Kind = service.CheckNone
	}
	return target
}

// choose gives the backends to use, in their order, and the state that makes. Where
// those are all that there are, they are the same slice: it may be long.
func choose(s *service.Service, f *Frontend, all []service.Backend, held map[netip.AddrPort]health.State) ([]service.Backend, State, string) {
	if len(f.Backends) == 0 {
		return nil, NoEndpoints, "no EndpointSlice has a ready endpoint for the Service"
	}
	good := subset{all: all}
	active, waiting, serving, up, known := 0, 0, 0, 0, false
	for i, b := range f.Backends {
		was := held[b.Addr]
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
			good.keep(i)
			up++
			if !b.Draining() {
				serving++
			}
		case state == health.Down && (waitsFor(f.Key.Protocol) || b.Health == health.Unknown):
			b.Weight = 0
			good.change(i, b.Backend)
		default:
			good.leaveOut(i)
		}
	}
	switch {
	case waiting > 0 && !known:
		// A ring of some servers only would send the flows of other balancers
		// astray.
		return nil, AwaitingHealth, fmt.Sprintf("the first health check of %d of %d servers has not ended", waiting, len(f.Backends))
	case serving > 0:
		return good.list(), Active, ""
	case active == 0 && up > 0:
		return good.list(), Draining, fmt.Sprintf("none of %d servers takes new connections, as all have the weight 0 or are terminating: open ones continue; give a server a weight above 0 (fairlead.io/weights)", len(f.Backends))
	case s.Panic:
		return all, Panic, fmt.Sprintf("none of %d servers passes its %s check: all are kept in service", len(f.Backends), s.Health.Kind)
	}
	return nil, NoHealthyBackend, fmt.Sprintf("none of %d servers passes its %s check, and panic mode is off", len(f.Backends), s.Health.Kind)
}

// subset is a part of a list, some of it changed: the list itself, and no copy, as long
// as it is all of it.
type subset struct {
	all, part []service.Backend
	copied    bool
}

func (s *subset) keep(i int) {
	if s.copied {
		s.part = append(s.part, s.all[i])
	}
}

func (s *subset) change(i int, to service.Backend) {
	s.leaveOut(i)
	s.part = append(s.part, to)
}

func (s *subset) leaveOut(i int) {
	if !s.copied {
		s.part, s.copied = append(make([]service.Backend, 0, len(s.all)), s.all[:i]...), true
	}
}

func (s *subset) list() []service.Backend {
	if s.copied {
		return s.part
	}
	return slices.Clip(s.all)
}

// waitsFor says whether the flows of a server that is down stay with it: not
// where nothing tells a client that they are lost.
func waitsFor(p service.Protocol) bool { return p == service.TCP || p == service.SCTP }
