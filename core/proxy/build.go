package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/truefirst"
)

// Build returns the frontends of one Service, sorted by Key, and a Problem for everything
// that it left out. slices are those of the Service, always in the same order. Its
// decisions match kube-proxy v1.36 (pkg/proxy: serviceport.go, endpointslicecache.go,
// topology.go), with one exception: source ranges that are all of the other family close
// a load balancer IP instead of opening it.
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

// most returns the maximum number of frontends of a Service, which is also the usual
// number.
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

// served reports whether an address is valid for a frontend or an endpoint.
func served(a netip.Addr) bool { return service.CheckUnicast(a) == nil }

// doubled reports whether an earlier address is of the same family.
func doubled(before []netip.Addr, a netip.Addr) bool {
	for _, o := range before {
		if served(o) && o.Is4() == a.Is4() {
			return true
		}
	}
	return false
}

// port adds the frontends of one port in the family of clusterIP.
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
	// What this node's clients send to an external address never leaves the node: no
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

// each adds a copy of f for each address of f's family.
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

// allowed returns the source ranges of a family. Empty: all clients.
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

// sorted returns the frontends by Key. If the Service has an address twice, the first
// kind wins.
func (b *builder) sorted() []Frontend {
	slices.SortStableFunc(b.frontends, func(a, o Frontend) int { return a.Key.Compare(o.Key) })
	return slices.CompactFunc(b.frontends, func(a, o Frontend) bool { return a.Key == o.Key })
}

// choices returns what clients of one port get in one family with traffic policy Cluster
// and, if the Service uses it, Local.
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

// without returns the elements of list that are not in other. Both are sorted.
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

// local reports whether an endpoint runs on this node.
func (b *builder) local(e *Endpoint) bool { return e.Node != "" && e.Node == b.node.Name }

// candidate is an endpoint with the address on which it serves a port.
type candidate struct {
	*Endpoint
	addr netip.AddrPort
}

// candidates appends the endpoints of one port to all, sorted by address and each once.
// Of duplicates, one that is not terminating wins: another pod may have got the address
// of a terminating one.
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
		return cmp.Or(c.addr.Compare(o.addr), truefirst.Compare(!c.Terminating, !o.Terminating), truefirst.Compare(c.Ready, o.Ready),
			truefirst.Compare(c.Serving, o.Serving), truefirst.Compare(b.local(c.Endpoint), b.local(o.Endpoint)))
	})
	return slices.CompactFunc(all, func(c, o candidate) bool { return c.addr == o.addr })
}

// fits reports whether an address is valid for an endpoint of the slice.
func (sl *Slice) fits(a netip.Addr) bool { return served(a) && a.Is6() == sl.IPv6 }

// isSelf reports whether an endpoint is the same address and port that it should serve:
// traffic would loop. An external address may be a node's own, on which a host-network
// pod serves the same port: that is not a loop.
func (b *builder) isSelf(e *Endpoint, port uint16, p ServicePort) bool {
	if port != p.Port {
		return false
	}
	return slices.Contains(b.s.ClusterIPs, e.Addr) ||
		e.Node == "" && (slices.Contains(b.s.ExternalIPs, e.Addr) || slices.Contains(b.s.LoadBalancerIPs, e.Addr))
}

// condition selects endpoints: the ready ones or, if none is ready, those that are
// terminating but serving (KEP-1669). An endpoint that serves keeps its UDP flows in any
// case (kube-proxy's conntrack/cleanup.go).
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

// place restricts the location of endpoints.
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

// nearness returns where topology hints direct this node's clients. Hints count only if
// every ready endpoint has them and one is for this node or, failing that (KEP-3015), for
// its zone.
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

// String returns "10.96.0.1:80/TCP".
func (k Key) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String() + "/" + k.Protocol.String()
}

// Same reports whether two frontends are equal.
func (f *Frontend) Same(o *Frontend) bool {
	return f.Key == o.Key && f.Kind == o.Kind && f.Affinity == o.Affinity && f.Closed == o.Closed &&
		f.Inside.same(o.Inside) && f.Outside.same(o.Outside) && slices.Equal(f.Allow, o.Allow)
}

func (c Choice) same(o Choice) bool {
	return c.Empty == o.Empty && slices.Equal(c.Targets, o.Targets) && slices.Equal(c.Keeps, o.Keeps)
}
