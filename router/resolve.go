package router

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/features"
)

// hop is a next hop as the kernel needs it.
type hop struct {
	gateway netip.Addr
	oif     int
	// onlink means that the gateway is on the device's link although its address is in
	// none of our networks.
	onlink bool
}

// compare orders by gateway, then device: the order of a group determines the choice for
// each flow.
func (h hop) compare(o hop) int {
	return cmp.Or(h.gateway.Compare(o.gateway), cmp.Compare(h.oif, o.oif), cmp.Compare(oneIf(h.onlink), oneIf(o.onlink)))
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// resolver looks up next hops and their objects, each once per apply.
type resolver struct {
	t    *Table
	k    *kernel
	ways map[netip.Addr]result[hop]
	ids  map[hop]result[uint32]
	// rejected means that the kernel has rejected a next hop.
	rejected bool
}

type result[T any] struct {
	value T
	err   error
}

func (t *Table) newResolver(k *kernel) *resolver {
	return &resolver{t: t, k: k, ways: map[netip.Addr]result[hop]{}, ids: map[hop]result[uint32]{}}
}

// member returns the ID of the next hop at an index of a route.
func (r *resolver) member(w desiredRoute, i int) (uint32, error) {
	nh := w.NextHops[i]
	if w.links != nil {
		return r.id(hop{gateway: nh, oif: w.links[i].device, onlink: w.links[i].onlink})
	}
	way, known := r.ways[nh]
	if !known {
		way.value, way.err = r.t.resolve(nh)
		r.ways[nh] = way
	}
	if way.err != nil {
		return 0, way.err
	}
	id, err := r.id(way.value)
	if err != nil && way.value.gateway != nh {
		return 0, fmt.Errorf("next hop %s: %w", nh, err)
	}
	return id, err
}

// id returns the next-hop object of a hop, creating it if needed.
func (r *resolver) id(h hop) (uint32, error) {
	if id, ok := r.k.hops[h]; ok {
		return id, nil
	}
	made, known := r.ids[h]
	if !known {
		made.value, made.err = r.t.makeHop(r.k, h)
		r.ids[h] = made
		r.rejected = r.rejected || made.err != nil
	}
	return made.value, made.err
}

func (t *Table) makeHop(k *kernel, h hop) (uint32, error) {
	id, err := t.take(k)
	if err != nil {
		return 0, err
	}
	if err := t.addHop(id, h); err != nil {
		k.release(id)
		return 0, t.explain(fmt.Sprintf("next hop %s dev %s", h.gateway, t.device(h.oif)), err)
	}
	k.hops[h], k.hopOf[id] = id, h
	return id, nil
}

// explain describes what the kernel rejected. If the kernel returns no message, a missing
// feature may be the cause.
func (t *Table) explain(what string, err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok && err.Error() != errno.Error() {
		return fmt.Errorf("%s: %w", what, err)
	}
	return features.Refused(features.Router, what, err)
}

// device returns the name of a link.
func (t *Table) device(index int) string {
	if l, err := t.handle.LinkByIndex(index); err == nil {
		return l.Attrs().Name
	}
	return fmt.Sprintf("if%d", index)
}

// resolve looks up the path to a next hop: its device and, if it is not in one of our
// networks, the gateway towards it, which may be of the other family (RFC 8950). The
// default route does not count: an unknown next hop would send its share of the packets
// there.
func (t *Table) resolve(nh netip.Addr) (hop, error) {
	rs, err := t.handle.RouteGetWithOptions(nh.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil {
		return hop{}, fmt.Errorf("next hop %s: no route to it (%w)", nh, err)
	}
	switch {
	case len(rs) == 0 || rs[0].Type != unix.RTN_UNICAST:
		return hop{}, fmt.Errorf("next hop %s is an address of this machine", nh)
	case rs[0].Dst == nil || rs[0].Dst.IP.IsUnspecified():
		return hop{}, fmt.Errorf("next hop %s: reachable by the default route only; add a more specific route to it", nh)
	}
	r := rs[0]
	h := hop{gateway: nh, oif: r.LinkIndex, onlink: r.Flags&unix.RTNH_F_ONLINK != 0}
	gw := gateway(r.Gw, r.Via)
	if len(r.MultiPath) > 0 {
		first := r.MultiPath[max(0, slices.IndexFunc(r.MultiPath, hasLink))]
		h.oif, h.onlink, gw = first.LinkIndex, first.Flags&unix.RTNH_F_ONLINK != 0, gateway(first.Gw, first.Via)
	}
	if gw.IsValid() {
		h.gateway = gw
	}
	return h, nil
}

// hasLink reports whether the kernel would send packets over a path.
func hasLink(h *netlink.NexthopInfo) bool {
	return h.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0
}

// gateway returns the gateway of a route: RTA_GATEWAY, or RTA_VIA if it is of the other
// family. It is invalid without either.
func gateway(gw net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok && v != nil {
		gw = v.Addr
	}
	a, _ := netip.AddrFromSlice(gw)
	return a.Unmap()
}
