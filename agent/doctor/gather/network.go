package gather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/internal/sysctl"
)

// network lists interfaces, routes and neighbors, and examines the relevant interfaces.
func network(ctx context.Context, o doctor.Options) (n doctor.Network, err error) {
	links, err := netlist.Whole(netlink.LinkList)
	if err != nil {
		return n, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		n.Names = append(n.Names, l.Attrs().Name)
	}
	if n.Routes, err = routes(ctx, names); err != nil {
		return n, fmt.Errorf("list routes: %w", err)
	}
	n.Neighbors4, n.Neighbors6 = neighbors(unix.AF_INET), neighbors(unix.AF_INET6)
	ours := pinnedPrograms(o.BPFFS)
	selected := doctor.Selected(o, n.Routes)
	for _, l := range links {
		if slices.Contains(selected, l.Attrs().Name) {
			n.Links = append(n.Links, examine(l, ours))
		}
	}
	return n, nil
}

// mostRoutes limits how many routes of a family are examined: a router may have a
// million, and the kernel lists default routes first.
const mostRoutes = 20000

func routes(ctx context.Context, names map[int]string) (all []doctor.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		count := 0
		main := &netlink.Route{Table: unix.RT_TABLE_MAIN}
		err := netlink.RouteListFilteredIter(family, main, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			all = append(all, routesOf(r, family == netlink.FAMILY_V6, names)...)
			count++
			return count < mostRoutes && ctx.Err() == nil
		})
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, err
		}
	}
	return all, nil
}

// routesOf returns one route for each outgoing device of a route.
func routesOf(r netlink.Route, v6 bool, names map[int]string) (all []doctor.Route) {
	prefix := "default"
	if r.Dst != nil {
		if ones, _ := r.Dst.Mask.Size(); ones > 0 || !r.Dst.IP.IsUnspecified() {
			prefix = r.Dst.String()
		}
	}
	hops := r.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
	}
	for _, hop := range hops {
		route := doctor.Route{Prefix: prefix, Device: names[hop.LinkIndex], MTU: r.MTU, IPv6: v6}
		if hop.Gw != nil {
			route.Via = hop.Gw.String()
		}
		if route.Device != "" && r.Type == unix.RTN_UNICAST {
			all = append(all, route)
		}
	}
	return all
}

// neighbors counts the entries that count toward gc_thresh3.
func neighbors(family int) (n int) {
	all, err := netlist.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, family) })
	if err != nil {
		return 0
	}
	for _, entry := range all {
		if entry.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0 {
			n++
		}
	}
	return n
}

// examine examines one interface.
func examine(l netlink.Link, ours map[uint32]bool) doctor.Link {
	at := l.Attrs()
	link := doctor.Link{
		Name: at.Name, Driver: driverOf(at.Name), MTU: at.MTU, RPFilter: reversePath(at.Name),
		Up: at.RawFlags&unix.IFF_UP != 0, Carrier: at.RawFlags&unix.IFF_LOWER_UP != 0, Addresses: addresses(l),
		Queues: known(queuesOf(at.Name)), XDP: nativeXDP(l), TC: known(programsAt(l, ours)),
	}
	if link.Driver == "" {
		link.Driver = l.Type()
	}
	if x := at.Xdp; x != nil && x.Attached {
		link.Attached = &doctor.Program{ID: x.ProgId, Name: programName(x.ProgId), Hook: "xdp", Ours: ours[x.ProgId]}
	}
	return link
}

// addresses counts the addresses of global scope.
func addresses(l netlink.Link) (n int) {
	all, err := netlist.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return 0
	}
	for _, a := range all {
		if a.IP.IsGlobalUnicast() {
			n++
		}
	}
	return n
}

// reversePath returns the effective mode: the larger of the interface's and that of "all"
// (Linux ip-sysctl.rst).
func reversePath(name string) int {
	mode := 0
	for _, device := range []string{"all", name} {
		if n, err := strconv.Atoi(sysctl.Read("ipv4/conf/" + device + "/rp_filter")); err == nil {
			mode = max(mode, n)
		}
	}
	return mode
}

// nativeXDP queries the driver; kernels before 6.3 do not support the query.
func nativeXDP(l netlink.Link) doctor.Known[doctor.XDPFeatures] {
	const basic, redirect, target, fragments = 1 << 0, 1 << 1, 1 << 2, 1 << 5 // NETDEV_XDP_ACT_*, linux/netdev.h
	bits, err := device.Features(l)
	return known(doctor.XDPFeatures{
		Basic: bits&basic != 0, Redirect: bits&redirect != 0, RedirectTarget: bits&target != 0, Fragments: bits&fragments != 0,
	}, err)
}

// filters lists the BPF programs on one side of an interface's clsact.
func filters(l netlink.Link, parent uint32) (all []*netlink.BpfFilter, err error) {
	list, err := netlist.Whole(func() ([]netlink.Filter, error) { return netlink.FilterList(l, parent) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, nil // it has no clsact
	}
	for _, f := range list {
		if bpf, ok := f.(*netlink.BpfFilter); ok {
			all = append(all, bpf)
		}
	}
	return all, err
}

// Constants from <linux/netfilter/nfnetlink.h> that the library does not provide.
const (
	nftGetChain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETCHAIN
	nfgenmsgLen = 4
)

// nfgenmsg is struct nfgenmsg: all families, version 0.
type nfgenmsg struct{}

func (nfgenmsg) Len() int          { return nfgenmsgLen }
func (nfgenmsg) Serialize() []byte { return make([]byte, nfgenmsgLen) }

// nftChains lists the nftables chains, as table and chain.
func nftChains() (all [][2]string, err error) {
	req := nl.NewNetlinkRequest(nftGetChain, unix.NLM_F_DUMP)
	req.AddData(nfgenmsg{})
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err
	}
	for _, m := range answers {
		attrs, err := nl.ParseRouteAttr(m[nfgenmsgLen:])
		if err != nil {
			return nil, err
		}
		var chain [2]string
		for _, a := range attrs {
			switch a.Attr.Type {
			case unix.NFTA_CHAIN_TABLE:
				chain[0] = unix.ByteSliceToString(a.Value)
			case unix.NFTA_CHAIN_NAME:
				chain[1] = unix.ByteSliceToString(a.Value)
			}
		}
		all = append(all, chain)
	}
	return all, nil
}
