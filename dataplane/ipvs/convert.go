package ipvs

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
)

// Flags of a virtual service (include/uapi/linux/ip_vs.h).
const (
	flagPersistent = 1 << 0
	flagHashed     = 1 << 1 // the kernel's own
	flagOnePacket  = 1 << 2
	flagFallback   = 1 << 3 // sh and mh: skip full or draining backends
	flagPorts      = 1 << 4 // sh and mh: include ports

	// The kernel preserves bits that it does not know. They mark Fairlead's services,
	// and properties that IPVS does not have.
	flagOwner     = 0xfa1 << 20
	flagOwnerMask = 0xfff << 20
	flagFullNAT   = 1 << 16
	flagGuarded   = 1 << 17 // allow and deny are in rules
)

// The forwarding method of a backend, and its kind of tunnel.
const (
	forwardMasq   = 0
	forwardTunnel = 2
	forwardRoute  = 3
	forwardMask   = 7

	tunnelIPIP = 0
	tunnelGUE  = 1
)

var schedulers = map[service.Scheduler]string{
	service.Maglev:             "mh",
	service.RoundRobin:         "rr",
	service.WeightedRoundRobin: "wrr",
	service.LeastConn:          "lc",
	service.WeightedLeastConn:  "wlc",
	service.SourceHash:         "sh",
	service.DestinationHash:    "dh",
}

var forwards = map[service.Method]uint32{
	service.NAT: forwardMasq, service.FullNAT: forwardMasq, service.DR: forwardRoute, service.Tunnel: forwardTunnel,
}

// Canonical returns what IPVS stores of a frontend. It tracks every flow, except UDP
// flows configured for one-packet scheduling, and the kernel sets the ring size.
func (d *DataPlane) Canonical(f desired.Frontend) desired.Frontend { return canonical(f) }

func canonical(f desired.Frontend) desired.Frontend {
	c := desired.Frontend{Key: f.Key, Method: f.Method, Scheduler: f.Scheduler, Survival: service.FlowTable, Affinity: f.Affinity}
	c.Allow, c.Deny = guardOf(f)
	c.Limits = f.Limits
	if f.Method == service.Tunnel {
		c.Encapsulation = cmp.Or(f.Encapsulation, service.DefaultEncapsulation)
	}
	if onePacket(f) {
		c.Survival = service.HashOnly
	}
	for _, b := range f.Backends {
		c.Backends = append(c.Backends, service.Backend{Addr: b.Addr, Weight: b.Weight, MaxConns: b.MaxConns})
	}
	return c
}

// onePacket reports whether every packet of f is scheduled separately: UDP without flow
// tracking, with a hash that finds the same backend again.
func onePacket(f desired.Frontend) bool {
	return f.Protocol == service.UDP && f.Survival == service.HashOnly && !f.Stateful()
}

// recordOf returns the IPVS configuration of a frontend. mark is that of a port range's
// packets, guePort the destination port of GUE tunnels.
func recordOf(f desired.Frontend, mark uint32, guePort uint16) record {
	r := record{virtual: virtual{
		serviceID: serviceID{v6: f.VIP.Is6()},
		scheduler: schedulers[f.Scheduler], flags: flagOwner | schedulerFlags(f), netmask: ^uint32(0),
	}}
	if f.Range() {
		r.mark = mark
	} else {
		r.vip, r.protocol = netip.AddrPortFrom(f.VIP, f.Port), f.Protocol
	}
	if r.v6 {
		r.netmask = 128
	}
	if f.Affinity > 0 {
		r.flags |= flagPersistent
		r.timeout = uint32(f.Affinity / time.Second)
	}
	if onePacket(f) {
		r.flags |= flagOnePacket
	}
	if f.Method == service.FullNAT {
		r.flags |= flagFullNAT
	}
	if r.allow, r.deny = guardOf(f); len(r.allow)+len(r.deny) > 0 {
		r.flags |= flagGuarded
	}
	for _, b := range f.Backends {
		// A lower threshold equal to the upper one admits connections again as
		// soon as there is room.
		s := server{addr: b.Addr, forward: forwards[f.Method], weight: b.Weight, upper: b.MaxConns, lower: b.MaxConns}
		if f.Method == service.Tunnel && f.Encapsulation == service.GUE {
			s.tunnel, s.tunnelPort = tunnelGUE, guePort
		}
		r.servers = append(r.servers, s)
	}
	slices.SortFunc(r.servers, compareServers)
	return r
}

func schedulerFlags(f desired.Frontend) uint32 {
	switch {
	case f.Scheduler == service.Maglev && f.HashBy() == schedule.ByFlow:
		return flagFallback | flagPorts
	case f.Scheduler == service.Maglev, f.Scheduler == service.SourceHash:
		return flagFallback
	}
	return 0
}

// frontendOf is the inverse of recordOf: canonical. What Fairlead does not write results
// in an empty value, so that it matches no desired frontend.
func frontendOf(r record, k service.Key) desired.Frontend {
	f := desired.Frontend{Key: k, Survival: service.FlowTable, Allow: r.allow, Deny: r.deny}
	for name, theirs := range schedulers {
		if theirs == r.scheduler {
			f.Scheduler = name
		}
	}
	if r.flags&flagPersistent != 0 {
		f.Affinity = time.Duration(r.timeout) * time.Second
	}
	if r.flags&flagOnePacket != 0 {
		f.Survival = service.HashOnly
	}
	for i, s := range r.servers {
		method, encapsulation := methodOf(r.virtual, s)
		if i == 0 {
			f.Method, f.Encapsulation = method, encapsulation
		}
		if method != f.Method || encapsulation != f.Encapsulation {
			f.Method, f.Encapsulation = "", ""
		}
		f.Backends = append(f.Backends, service.Backend{Addr: s.addr, Weight: s.weight, MaxConns: s.upper})
	}
	return f
}

func methodOf(v virtual, s server) (service.Method, service.Encapsulation) {
	switch {
	case s.forward == forwardMasq && v.flags&flagFullNAT != 0:
		return service.FullNAT, ""
	case s.forward == forwardMasq:
		return service.NAT, ""
	case s.forward == forwardRoute:
		return service.DR, ""
	case s.forward == forwardTunnel && s.tunnel == tunnelIPIP:
		return service.Tunnel, service.IPIP
	case s.forward == forwardTunnel && s.tunnel == tunnelGUE:
		return service.Tunnel, service.GUE
	}
	return "", ""
}

// keyOf returns a frontend's key, except for a port range.
func keyOf(id serviceID) service.Key {
	return service.Key{VIP: id.vip.Addr(), Port: id.vip.Port(), Protocol: id.protocol}
}

func (v virtual) ours() bool { return v.flags&flagOwnerMask == flagOwner }

func compareServers(a, b server) int { return a.addr.Compare(b.addr) }

// changes returns the messages that turn have into want, in an order in which traffic
// never sees a partial state: first additions, then changes, then removals. The kernel
// adds a new backend at the front of its list, so they are sent in reverse order, to give
// all load balancers the same order.
func changes(have *record, want record) (list []message) {
	var was []server
	switch {
	case have == nil:
		list = append(list, serviceMessage(cmdNewService, want.virtual))
	default:
		was = have.servers
	}
	find := func(in []server, s server) (server, bool) {
		i, ok := slices.BinarySearchFunc(in, s, compareServers)
		if !ok {
			return server{}, false
		}
		return in[i], true
	}
	var changed, gone []message
	for _, s := range slices.Backward(want.servers) {
		switch old, known := find(was, s); {
		case !known:
			list = append(list, destMessage(cmdNewDest, want.serviceID, s))
		case old != s:
			changed = append(changed, destMessage(cmdSetDest, want.serviceID, s))
		}
	}
	for _, s := range was {
		if _, stays := find(want.servers, s); !stays {
			gone = append(gone, destMessage(cmdDelDest, want.serviceID, s))
		}
	}
	if have != nil && have.virtual != want.virtual {
		list = append(list, serviceMessage(cmdSetService, want.virtual))
	}
	return append(append(list, changed...), gone...)
}
