package router

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rtaNhID is RTA_NH_ID of Linux's include/uapi/linux/rtnetlink.h.
const rtaNhID = 30

// Route is one of our routes in the kernel.
type Route struct {
	// Prefix is the destination.
	Prefix netip.Prefix `json:"prefix"`
	// Group is the ID of the next-hop group; 0 for a route without a group, for example
	// one that another program added.
	Group uint32 `json:"group"`
	// Metric is the metric of the route.
	Metric uint32 `json:"metric"`
	// Protocol is the routing protocol number of the route.
	Protocol uint8 `json:"protocol"`
	// Hops are the next hops.
	Hops []Hop `json:"hops"`
	// Resilient means that flows of other next hops do not move when one leaves.
	Resilient bool `json:"resilient"`
}

// Hop is one path of a route.
type Hop struct {
	// Gateway is the address of the next hop.
	Gateway netip.Addr `json:"gateway"`
	// Device is the interface.
	Device string `json:"device"`
	// Weight is the share of flows.
	Weight int `json:"weight"`
	// Onlink means that the gateway's address is in no network of this machine.
	Onlink bool `json:"onlink,omitempty"`
}

// installed is a route with our protocol and metric that uses a group.
type installed struct {
	prefix netip.Prefix
	group  uint32
}

func (t *Table) rtmsg(family uint8) *nl.RtMsg {
	msg := nl.NewRtMsg()
	msg.Family, msg.Protocol = family, t.c.Protocol
	msg.Table = unix.RT_TABLE_UNSPEC // RTA_TABLE contains it, for numbers above 255
	return msg
}

func (t *Table) listRoutes() ([]installed, error) {
	var out []installed
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		msgs, err := t.dump(func() *nl.NetlinkRequest {
			req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
			req.AddData(t.rtmsg(family))
			req.AddData(nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(t.c.Table)))
			return req
		}, unix.RTM_NEWROUTE)
		if errors.Is(err, unix.ENOENT) {
			continue // the table has no routes yet
		}
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, m := range msgs {
			if r, ok := t.parseRoute(m); ok {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

func (t *Table) parseRoute(m []byte) (installed, bool) {
	if len(m) < unix.SizeofRtMsg {
		return installed{}, false
	}
	msg := nl.DeserializeRtMsg(m)
	attrs, err := nl.ParseRouteAttr(m[unix.SizeofRtMsg:])
	if err != nil || msg.Protocol != t.c.Protocol {
		return installed{}, false
	}
	var r installed
	dst, table, metric := netip.IPv4Unspecified(), uint32(msg.Table), uint32(0)
	if msg.Family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_TABLE:
			table = nl.NativeEndian().Uint32(a.Value)
		case unix.RTA_PRIORITY:
			metric = nl.NativeEndian().Uint32(a.Value)
		case rtaNhID:
			r.group = nl.NativeEndian().Uint32(a.Value)
		}
	}
	r.prefix = netip.PrefixFrom(dst, int(msg.Dst_len))
	return r, table == t.c.Table && metric == t.c.Metric && r.group != 0
}

// putRoute adds a route, or makes ours use another group.
func (t *Table) putRoute(p netip.Prefix, group uint32, replace bool) error {
	flags := unix.NLM_F_CREATE | unix.NLM_F_EXCL
	if replace {
		flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	}
	_, err := t.execute(t.routeRequest(unix.RTM_NEWROUTE, flags, p, group), 0)
	return err
}

func (t *Table) deleteRoute(p netip.Prefix, group uint32) error {
	_, err := t.execute(t.routeRequest(unix.RTM_DELROUTE, 0, p, group), 0)
	return err
}

func (t *Table) routeRequest(kind, flags int, p netip.Prefix, group uint32) *nl.NetlinkRequest {
	family := uint8(unix.AF_INET6)
	if p.Addr().Is4() {
		family = unix.AF_INET
	}
	msg := t.rtmsg(family)
	msg.Dst_len = uint8(p.Bits())
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.RTA_DST, p.Addr().AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(t.c.Table)))
	req.AddData(nl.NewRtAttr(unix.RTA_PRIORITY, nl.Uint32Attr(t.c.Metric)))
	req.AddData(nl.NewRtAttr(rtaNhID, nl.Uint32Attr(group)))
	return req
}

func (t *Table) present(k *kernel) []Route {
	names := map[int]string{}
	device := func(index int) string {
		if names[index] == "" {
			names[index] = t.device(index)
		}
		return names[index]
	}
	out := make([]Route, 0, len(k.routes))
	for prefix, id := range k.routes {
		g := k.groups[id]
		route := Route{Prefix: prefix, Group: id, Metric: t.c.Metric, Protocol: t.c.Protocol, Resilient: g.resilient}
		for _, m := range g.members {
			h := k.hopOf[m.id]
			route.Hops = append(route.Hops, Hop{Gateway: h.gateway, Device: device(h.oif), Weight: m.weight, Onlink: h.onlink})
		}
		out = append(out, route)
	}
	slices.SortFunc(out, func(a, b Route) int { return a.Prefix.Compare(b.Prefix) })
	return out
}

// protocolNames are from iproute2's etc/iproute2/rt_protos.
var protocolNames = map[uint8]string{
	unix.RTPROT_KERNEL: "kernel", unix.RTPROT_BOOT: "boot", unix.RTPROT_STATIC: "static",
	unix.RTPROT_ZEBRA: "zebra", unix.RTPROT_BIRD: "bird", unix.RTPROT_BGP: "bgp",
}

// Format formats routes like "ip route" (the paper's Fig. 12), without its trailing
// spaces.
func Format(routes []Route) string {
	var b strings.Builder
	for _, r := range routes {
		proto := cmp.Or(protocolNames[r.Protocol], fmt.Sprint(r.Protocol))
		name := r.Prefix.String()
		if r.Prefix.IsSingleIP() {
			name = r.Prefix.Addr().String()
		} else if r.Prefix.Bits() == 0 {
			name = "default"
		}
		b.WriteString(name)
		if r.Group != 0 {
			fmt.Fprintf(&b, " nhid %d", r.Group)
		}
		tail := fmt.Sprintf(" proto %s metric %d", proto, r.Metric)
		if !r.Prefix.Addr().Is4() {
			tail += " pref medium"
		}
		// A group of one is shown as a single path, for IPv4 only.
		if len(r.Hops) == 1 && r.Prefix.Addr().Is4() {
			h := r.Hops[0]
			fmt.Fprintf(&b, " via %s dev %s%s%s\n", h.via(r.Prefix), h.Device, tail, h.flags())
			continue
		}
		b.WriteString(tail + "\n")
		for _, h := range r.Hops {
			fmt.Fprintf(&b, "\tnexthop via %s dev %s weight %d%s\n", h.via(r.Prefix), h.Device, h.Weight, h.flags())
		}
	}
	return b.String()
}

// via includes the family of a gateway if it differs from the prefix's.
func (h Hop) via(p netip.Prefix) string {
	if p.Addr().Is4() && h.Gateway.Is6() {
		return "inet6 " + h.Gateway.String()
	}
	return h.Gateway.String()
}

func (h Hop) flags() string {
	if h.Onlink {
		return " onlink"
	}
	return ""
}
