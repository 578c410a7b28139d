package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/service"
)

// Build makes the frontends of one Service, sorted by Key, and names what it had
// to leave out of them. slices are those of the Service, in an order that is
// always the same. What it decides is what kube-proxy v1.36 does (pkg/proxy:
// serviceport.go, endpointslicecache.go, topology.go), but that source ranges of
// the other family alone close a load balancer's address instead of opening it.
func Build(s *Service, slices []*Slice, n Node) ([]Frontend, []Problem) {
	if s == nil || len(s.ClusterIPs) == 0 {
		return nil, nil
	}
	b := builder{s: s, slices: slices, node: n}
	b.checkAddresses()
	b.checkSlices()
	b.frontends = make([]Frontend, 0, most(s))
	for i, p := range s.Ports {
		if !b.checkPort(i, &p) {
			continue
		}
		for j, ip := range s.ClusterIPs {
			if served(ip) && !doubled(s.ClusterIPs[:j], ip) {
				b.port(p, ip)
			}
		}
	}
	return b.sorted(), b.problems
}

// most gives how many frontends a Service can have, which mostly it has.
func most(s *Service) int {
	n := len(s.Ports) * (len(s.ClusterIPs) + len(s.ExternalIPs) + len(s.LoadBalancerIPs))
	for _, p := range s.Ports {
		if p.NodePort != 0 {
			n += len(s.ClusterIPs)
		}
	}
	return n
}

type builder struct {
	s         *Service
	slices    []*Slice
	node      Node
	frontends []Frontend
	problems  []Problem
}

// served says whether an address can be a frontend's or an endpoint's.
func served(a netip.Addr) bool { return service.CheckUnicast(a) == nil }

// doubled says whether there was already an address of the same family.
func doubled(before []netip.Addr, a netip.Addr) bool {
	for _, o := range before {
		if served(o) && o.Is4() == a.Is4() {
			return true
		}
	}
	return false
}

// port adds the frontends that one port has in the family of clusterIP.
func (b *builder) port(p ServicePort, clusterIP netip.Addr) {
	cluster, local := b.choices(p, clusterIP)
	internal, external := cluster, cluster
	if b.s.InternalLocal {
		internal = local
	}
	if b.s.ExternalLocal {
		external = local
	}
	f := Frontend{
		Key: Key{Addr: clusterIP, Port: p.Port, Protocol: p.Protocol}, Kind: ClusterIP,
		Inside: internal, Outside: internal, Affinity: max(b.s.Affinity, 0),
	}
	b.frontends = append(b.frontends, f)
	// What this node's clients send to an outer address never leaves it: no
	// policy applies to it.
	f.Inside, f.Outside = cluster, external
	b.each(b.s.LoadBalancerIPs, f, LoadBalancerIP)
	b.each(b.s.ExternalIPs, f, ExternalIP)
	if p.NodePort != 0 {
		f.Key.Addr, f.Key.Port, f.Kind = netip.IPv4Unspecified(), p.NodePort, NodePort
		if clusterIP.Is6() {
			f.Key.Addr = netip.IPv6Unspecified()
		}
		b.frontends = append(b.frontends, f)
	}
}

// each adds a frontend like f for each address of f's family.
func (b *builder) each(addrs []netip.Addr, f Frontend, kind Kind) {
	family := f.Addr.Is4()
	f.Kind = kind
	if kind == LoadBalancerIP {
		f.Allow, f.Closed = b.allowed(family)
	}
	for _, a := range addrs {
		if served(a) && a.Is4() == family {
			f.Key.Addr = a
			b.frontends = append(b.frontends, f)
		}
	}
}

// allowed gives the source ranges of a family; none for everybody.
func (b *builder) allowed(is4 bool) (allow []netip.Prefix, closed bool) {
	for _, p := range b.s.SourceRanges {
		switch {
		case !p.IsValid() || p.Addr().Is4() != is4:
		case p.Bits() == 0:
			return nil, false
		default:
			allow = append(allow, p.Masked())
		}
	}
	return allow, len(b.s.SourceRanges) > 0 && len(allow) == 0
}

// sorted gives the frontends by Key. An address that the Service has twice is
// that of the kind that came first.
func (b *builder) sorted() []Frontend {
	slices.SortStableFunc(b.frontends, func(a, o Frontend) int { return a.Key.Compare(o.Key) })
	return slices.CompactFunc(b.frontends, func(a, o Frontend) bool { return a.Key == o.Key })
}

// choices are what clients of one port get in one family by the policy Cluster
// and, where the Service has such a policy, by Local.
func (b *builder) choices(p ServicePort, clusterIP netip.Addr) (cluster, local Choice) {
	var few [16]candidate
	all := b.candidates(few[:0], p, clusterIP)
	if cluster.Targets = b.targets(all, ready, b.nearness(all)); len(cluster.Targets) == 0 {
		cluster.Targets = b.targets(all, leaving, anywhere)
	}
	var serving []Target
	if p.Protocol == service.UDP {
		serving = b.targets(all, answering, anywhere)
	}
	cluster.Keeps = without(serving, cluster.Targets)
	if !b.s.InternalLocal && !b.s.ExternalLocal {
		return cluster, local
	}
	if local.Targets = b.targets(all, ready, here); len(local.Targets) == 0 {
		local.Targets = b.targets(all, leaving, here)
	}
	if slices.Equal(local.Targets, cluster.Targets) {
		return cluster, cluster
	}
	if len(local.Targets) == 0 {
		local.Empty = Dropped
	}
	local.Keeps = without(serving, local.Targets)
	return cluster, local
}

// without gives those of a list that another has not; both are sorted.
func without(list, other []Target) (rest []Target) {
	for _, t := range list {
		for len(other) > 0 && other[0].Addr.Compare(t.Addr) < 0 {
			other = other[1:]
		}
		if len(other) == 0 || other[0].Addr != t.Addr {
			rest = append(rest, t)
		}
	}
	return rest
}

// local says whether an endpoint runs on this node.
func (b *builder) local(e *Endpoint) bool { return e.Node != "" && e.Node == b.node.Name }

// candidate is an endpoint and the address on which it serves a port.
type candidate struct {
	*Endpoint
	addr netip.AddrPort
}

// candidates appends the endpoints of one port to all, sorted by address and each once. Of
// doubles, one that does not terminate wins: another pod may have got the address
// of one that goes.
func (b *builder) candidates(all []candidate, p ServicePort, clusterIP netip.Addr) []candidate {
	for _, sl := range b.slices {
		for _, sp := range sl.Ports {
			if sp.Name != p.Name || sp.Protocol != p.Protocol || sp.Port == 0 {
				continue
			}
			all = slices.Grow(all, len(sl.Endpoints))
			for i := range sl.Endpoints {
				e := &sl.Endpoints[i]
				if e.Addr.Is4() == clusterIP.Is4() && sl.fits(e.Addr) && !b.isSelf(e, sp.Port, p) {
					all = append(all, candidate{e, netip.AddrPortFrom(e.Addr, sp.Port)})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(c, o candidate) int {
		return cmp.Or(c.addr.Compare(o.addr), first(!c.Terminating, !o.Terminating), first(c.Ready, o.Ready),
			first(c.Serving, o.Serving), first(b.local(c.Endpoint), b.local(o.Endpoint)))
	})
	return slices.CompactFunc(all, func(c, o candidate) bool { return c.addr == o.addr })
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// fits says whether an address can be that of an endpoint in the slice.
func (sl *Slice) fits(a netip.Addr) bool { return served(a) && a.Is6() == sl.IPv6 }

// isSelf says whether an endpoint is the very port that it should serve: traffic
// would go in circles. An outer address may be a node's own, where a pod in the
// network of its node serves the same port: that one is none.
func (b *builder) isSelf(e *Endpoint, port uint16, p ServicePort) bool {
	if port != p.Port {
		return false
	}
	return slices.Contains(b.s.ClusterIPs, e.Addr) ||
		e.Node == "" && (slices.Contains(b.s.ExternalIPs, e.Addr) || slices.Contains(b.s.LoadBalancerIPs, e.Addr))
}

// condition is which endpoints to take: the ready ones or, where there are none,
// those that serve though they terminate (KEP-1669). Whoever serves keeps its
// flows of UDP, whatever else is so (kube-proxy's conntrack/cleanup.go).
type condition uint8

const (
	ready condition = iota
	leaving
	answering
)

func (c *candidate) is(wanted condition) bool {
	switch wanted {
	case ready:
		return c.Ready
	case leaving:
		return c.Serving && c.Terminating
	}
	return c.Serving
}

// place is where endpoints must be to be taken.
type place uint8

const (
	anywhere place = iota
	here           // on this node
	sameNode       // hinted for this node
	sameZone       // hinted for this node's zone
)

func (b *builder) isAt(e *Endpoint, p place) bool {
	switch p {
	case here:
		return b.local(e)
	case sameNode:
		return b.node.Name != "" && slices.Contains(e.ForNodes, b.node.Name)
	case sameZone:
		return b.node.Zone != "" && slices.Contains(e.ForZones, b.node.Zone)
	}
	return true
}

// nearness gives where the hints send this node's clients. They count only where
// every ready endpoint has some and one is for this node, else (KEP-3015) for its
// zone.
func (b *builder) nearness(all []candidate) place {
	nodes, zones, node, zone := true, true, false, false
	for i := range all {
		if c := &all[i]; c.Ready {
			nodes, zones = nodes && len(c.ForNodes) > 0, zones && len(c.ForZones) > 0
			node, zone = node || b.isAt(c.Endpoint, sameNode), zone || b.isAt(c.Endpoint, sameZone)
		}
	}
	switch {
	case nodes && node:
		return sameNode
	case zones && zone:
		return sameZone
	}
	return anywhere
}

func (b *builder) targets(all []candidate, wanted condition, where place) []Target {
	count := 0
	for i := range all {
		if c := &all[i]; c.is(wanted) && b.isAt(c.Endpoint, where) {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	list := make([]Target, 0, count)
	for i := range all {
		if c := &all[i]; c.is(wanted) && b.isAt(c.Endpoint, where) {
			list = append(list, Target{Addr: c.addr, Local: b.local(c.Endpoint)})
		}
	}
	return list
}

// String gives "10.96.0.1:80/TCP".
func (k Key) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String() + "/" + k.Protocol.String()
}

// Same says whether two frontends are alike in all.
func (f *Frontend) Same(o *Frontend) bool {
	return f.Key == o.Key && f.Kind == o.Kind && f.Affinity == o.Affinity && f.Closed == o.Closed &&
		f.Inside.same(o.Inside) && f.Outside.same(o.Outside) && slices.Equal(f.Allow, o.Allow)
}

func (c Choice) same(o Choice) bool {
	return c.Empty == o.Empty && slices.Equal(c.Targets, o.Targets) && slices.Equal(c.Keeps, o.Keeps)
}
