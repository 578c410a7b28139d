// Package plan computes the Plan of a node from the Services, the health of their
// backends, and the node itself: which frontends to program, which routes to advertise,
// which backends to probe, and a named reason for everything rejected. It is pure and
// applies nothing; package reconciler does.
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

// Node is what the plan needs to know about the load balancer node.
type Node struct {
	Name string
	// NextHop4 and NextHop6 are advertised as the next hop of VIPs of their family. If
	// one is invalid, such VIPs are not advertised.
	NextHop4, NextHop6 netip.Addr
	// Only is the single Service that this load balancer serves. Zero: all Services that
	// do not have dedicated load balancers.
	Only service.ID
	// Weight is the node's weight among load balancers if nothing else sets one. 0 means
	// 1.
	Weight uint32
	// Drain is the node's drain state.
	Drain Drain
}

// dedicatedElsewhere returns why a Service is left to other load balancers, or "".
func (n Node) dedicatedElsewhere(s *service.Service) string {
	switch {
	case n.Only != service.ID{} && n.Only != s.ID:
		return fmt.Sprintf("this load balancer is dedicated to Service %s", n.Only)
	case n.Only == service.ID{} && s.Dedicated:
		return "the Service is served by dedicated load balancers, started with --dedicated-service " + s.ID.String()
	}
	return ""
}

// Input contains everything that a Plan depends on.
type Input struct {
	// Services are sorted by ID.
	Services []*service.Service
	// Health returns the health of a target.
	Health func(health.Target) health.State
	// Held returns how the data plane currently has the backends of a frontend: Up, or
	// Down if a backend gets no new flows; nil if none is programmed. A backend whose
	// first probe is pending keeps its state, so that a starting agent disrupts nothing.
	// A nil function means that nothing is programmed.
	Held func(service.Key) map[netip.AddrPort]health.State
	// Owner returns the Service for which a Key was last programmed, if known. That
	// Service keeps the Key against newcomers. If Owner is nil, only the age of the
	// Services decides, which all load balancers know.
	Owner func(service.Key) (service.ID, bool)
	// Announce returns the offers under which this node advertises a VIP of a Service or,
	// without offers, the reason. If it is nil, all VIPs are advertised, under the
	// prefixes that Services specify themselves.
	Announce func(*service.Service, netip.Addr) ([]route.Offer, string)
	// Quarantines are the backends that operators drain.
	Quarantines []service.Quarantine
	Node        Node
	// Nodes maps addresses that no Service may have to their owners: "balancer lb2".
	// Traffic to these nodes would be lost.
	Nodes map[netip.Addr]string
}

// State is the outcome for a frontend.
type State string

// Frontend states. Only Active, Draining and Panic frontends are programmed.
const (
	Active             State = "active"
	Draining           State = "draining"            // all backends have weight 0: open connections stay, new ones are dropped
	Panic              State = "panic"               // all backends fail their checks: all stay in use
	NoEndpoints        State = "no-endpoints"        // the Service has no backend
	NoHealthyBackend   State = "no-healthy-backend"  // all backends fail and panic mode is disabled
	AwaitingHealth     State = "awaiting-health"     // no first probe has completed yet
	Conflict           State = "conflict"            // another Service has this VIP, port and protocol, or a node has the address
	DedicatedElsewhere State = "dedicated-elsewhere" // other load balancers serve this Service
	NotAdvertised      State = "not-advertised"      // an address that is served only where it is advertised is not advertised
)

// Programmed reports whether frontends in this state are programmed.
func (s State) Programmed() bool { return s == Active || s == Draining || s == Panic }

// Elsewhere reports whether this node does not serve frontends in this state at all.
func (s State) Elsewhere() bool {
	return s == Conflict || s == DedicatedElsewhere || s == NotAdvertised
}

// Frontend is the decision on one frontend of one Service.
type Frontend struct {
	Service  *service.Service
	Key      service.Key
	PortName string
	// Kind says where the Service has the VIP from.
	Kind  service.AddressKind
	State State
	// Reason explains why the state is not Active.
	Reason string
	// Backends lists all backends of the Service with their health. Those in use are in
	// Want.
	Backends []Backend
	// Want is what to program into the data plane, or nil.
	Want *desired.Frontend
	// healthy is the number of backends that take new flows, and local the addresses of
	// those that are on this node.
	healthy int
	local   []netip.Addr
	// incumbent means that the Key was programmed for this Service before.
	incumbent bool
	// all are Backends with the weights that orders to drain leave them.
	all    []service.Backend
	probed *probed
}

// All returns all backends, with weight 0 where an operator drains one. They are shared, and
// must not be modified.
func (f *Frontend) All() []service.Backend { return slices.Clip(f.all) }

// Backend is one backend with its health.
type Backend struct {
	service.Backend
	Target health.Target
	Health health.State
	// Quarantine is why an operator drains it, or nil.
	Quarantine *service.Quarantine
}

// Route is a route to advertise once its frontends are programmed.
type Route struct {
	route.Route
	// Frontends lists the frontends that the route leads to, sorted, including those that
	// await their first health checks, whose packets would arrive too early.
	Frontends []service.Key
	// By are the Advertisements that request it, sorted; none if the Services do.
	By []string
}

// Refusal is a route that is not advertised, or not with the requested attributes,
// although its frontends are programmed.
type Refusal struct {
	Prefix netip.Prefix
	// Rule identifies the cause; Reason explains it.
	Rule   Rule
	Reason string
}

// Rule says what prevents a route from being advertised, or from being advertised as
// requested.
type Rule string

// Rules.
const (
	RuleNoMatchingAdvertisement Rule = "no-matching-advertisement" // no Advertisement applies here
	RuleConditionsNotMet        Rule = "conditions-not-met"        // the conditions of those that apply are not met
	RuleNextHop                 Rule = "no-next-hop"               // the node has no address of that family to advertise
	RuleAttributeConflict       Rule = "attribute-conflict"        // two offers request different attributes
	RuleDraining                Rule = "draining"                  // the load balancer is draining
)

// Plan is the complete decision for a node.
type Plan struct {
	// Frontends is sorted by Key. If several Services claim a Key, the first one has it.
	Frontends []Frontend
	// Routes is sorted.
	Routes   []Route
	Refusals []Refusal
	// Targets lists the backends to probe, each once, in no particular order. A Planner
	// returns what has changed instead.
	Targets []health.Target
	// Quarantines are the orders that apply to backends, with their Services.
	Quarantines map[service.Quarantine][]string
}

// Find returns the first frontend with a Key, which has it, or nil.
func (p *Plan) Find(k service.Key) *Frontend {
	at, found := slices.BinarySearchFunc(p.Frontends, k, func(f Frontend, k service.Key) int { return f.Key.Compare(k) })
	if !found {
		return nil
	}
	return &p.Frontends[at]
}

// AtLeast returns the index of the first frontend whose VIP is not below an address.
func (p *Plan) AtLeast(a netip.Addr) int {
	i, _ := slices.BinarySearchFunc(p.Frontends, a, func(f Frontend, a netip.Addr) int { return f.Key.VIP.Compare(a) })
	return i
}

// Prefixes returns the prefixes of the routes.
func (p *Plan) Prefixes() map[netip.Prefix]bool {
	all := make(map[netip.Prefix]bool, len(p.Routes))
	for _, r := range p.Routes {
		all[r.Prefix] = true
	}
	return all
}

// Build computes the plan.
func Build(in Input) *Plan {
	p, probe, _ := new(Planner).Build(in, nil)
	p.Targets = probe
	return p
}

// decide returns the decision on one frontend, without regard to conflicts, and whether the
// health of all its backends is known. unadvertised is the result of notAdvertised.
func decide(in Input, drains quarantines, s *service.Service, t targets, sf *service.Frontend, unadvertised string) (f Frontend, known bool) {
	f = Frontend{Service: s, Key: sf.Key, PortName: sf.PortName, Kind: sf.Kind, Backends: make([]Backend, len(sf.Backends))}
	backends := drains.drain(&f, sf.Backends)
	f.all, known = backends, true
	for i, b := range backends {
		target, state := t.of(sf, b), health.Up
		if target.Check.Kind != service.CheckNone {
			state = in.Health(target)
		}
		f.Backends[i].Backend, f.Backends[i].Target, f.Backends[i].Health = b, target, state
		known = known && state != health.Unknown
	}
	if why := in.Node.dedicatedElsewhere(s); why != "" {
		f.State, f.Reason = DedicatedElsewhere, why
		return f, known
	}
	if whose := in.Nodes[sf.VIP]; whose != "" {
		f.State = Conflict
		f.Reason = fmt.Sprintf("%s is the address of %s, whose own traffic would be lost: give the Service another address, and reserve this one in its pool (reserved)", sf.VIP, whose)
		return f, known
	}
	if unadvertised != "" {
		f.State, f.Reason = NotAdvertised, unadvertised
		return f, known
	}
	var held map[netip.AddrPort]health.State
	if !known && in.Held != nil { // otherwise it makes no difference
		held = in.Held(f.Key)
	}
	f.countHealthy(in, held)
	var used []service.Backend
	used, f.State, f.Reason = choose(s, &f, backends, held)
	if f.State == NoEndpoints && sf.NoBackends != "" {
		f.Reason = sf.NoBackends
	}
	if len(used) > 0 {
		want := desired.FrontendOf(s, f.Key, used)
		f.Want = &want
	}
	return f, known
}

// notAdvertised returns why an address that is served only where it is advertised is not
// served here, or "". Such addresses were not assigned to the Service as load balancer
// IPs: packets to them may be for others.
func (in Input) notAdvertised(s *service.Service, sf *service.Frontend) string {
	if sf.Kind == service.LoadBalancerAddress || in.Announce == nil {
		return ""
	}
	offers, why := in.Announce(s, sf.VIP)
	if len(offers) > 0 {
		return ""
	}
	return why
}

// countHealthy counts the backends that take new flows. Backends whose first probe is
// pending count as the data plane has them.
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

// targets says how to probe the backends of a Service.
type targets struct {
	check service.HealthCheck
	// tcp holds the TCP backends if the Service has other protocols, too. If its TCP
	// backends use other ports, only they are checked. Nil: the Service does not have
	// both.
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

// of returns the probe target for a backend of a frontend.
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

// choose returns the backends to use, in order, and the resulting state and reason. If
// all are used, it returns the same slice, which may be long.
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
				state = health.Up // weight 0 means draining, not down
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
		// A ring of only some backends would misdirect the flows of other load balancers.
		return nil, AwaitingHealth, fmt.Sprintf("the first health check of %d of %d backends is pending", waiting, len(f.Backends))
	case serving > 0:
		return good.list(), Active, ""
	case active == 0 && up > 0:
		return good.list(), Draining, f.drainingReason()
	case s.Panic:
		return all, Panic, fmt.Sprintf("none of %d backends passes its %s health check: all stay in service", len(f.Backends), s.Health.Kind)
	}
	return nil, NoHealthyBackend, fmt.Sprintf("none of %d backends passes its %s health check, and panic mode is disabled", len(f.Backends), s.Health.Kind)
}

// subset is a possibly modified part of a list. It is the list itself, not a copy, as
// long as nothing differs.
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

// waitsFor reports whether the flows of a backend that is down stay with it. They do not
// if nothing informs a client that its flow is lost.
func waitsFor(p service.Protocol) bool { return p == service.TCP || p == service.SCTP }
