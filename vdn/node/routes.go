package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/vdn"
)

// Protocol marks our routes in the kernel. No routing daemon uses this number
// (/etc/iproute2/rt_protos).
const Protocol netlink.RouteProtocol = 107

// metric is lower in preference than the kernel's own routes, 0 and 256
// (IP6_RT_PRIO_ADDRCONF), and than an operator's IPv4 routes, so that another domain cannot
// override them.
const metric = 1024

// routes manages the routes to federated networks in the network namespace where it was
// opened.
type routes struct{ nl *netlink.Handle }

func newRoutes() (*routes, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return &routes{nl: nl}, nil
}

func (r *routes) close() { r.nl.Close() }

// apply makes our routes in the kernel exactly these.
func (r *routes) apply(wanted []vdn.Route) error {
	held, err := netlist.Whole(func() ([]netlink.Route, error) {
		return r.nl.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: Protocol}, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	var errs []error
	keep := map[netip.Prefix]bool{}
	for _, w := range wanted {
		keep[w.Dst] = true
		if !w.GW.IsValid() {
			errs = append(errs, fmt.Errorf("route to %s: its domain has no next hop of that family: give the peer one", w.Dst))
			continue
		}
		if slices.ContainsFunc(held, func(have netlink.Route) bool { return same(have, w) }) {
			continue
		}
		if err := r.nl.RouteReplace(routeOf(w)); err != nil {
			errs = append(errs, fmt.Errorf("route to %s via %s: %w", w.Dst, w.GW, err))
		}
	}
	for _, have := range held {
		if keep[prefixOf(have.Dst)] && have.Priority == metric {
			continue
		}
		if err := r.nl.RouteDel(&have); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("route to %s: %w", have.Dst, err))
		}
	}
	return errors.Join(errs...)
}

func routeOf(w vdn.Route) *netlink.Route {
	p := w.Dst.Masked()
	dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	return &netlink.Route{Dst: dst, Gw: w.GW.AsSlice(), Protocol: Protocol, Priority: metric}
}

func same(have netlink.Route, w vdn.Route) bool {
	via, _ := netip.AddrFromSlice(have.Gw)
	return prefixOf(have.Dst) == w.Dst.Masked() && via.Unmap() == w.GW && have.Priority == metric
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}

// RemoveRoutes removes our routes in the calling thread's network namespace.
func RemoveRoutes() error {
	r, err := newRoutes()
	if err != nil {
		return err
	}
	defer r.close()
	return r.apply(nil)
}

// watchLinks has the plan applied again when an uplink appears, disappears or changes, such
// as a replaced NIC.
func (d *Daemon) watchLinks(ctx context.Context) (stop func(), err error) {
	updates, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	if err := netlink.LinkSubscribe(updates, done); err != nil {
		return nil, fmt.Errorf("watch devices: %w", err)
	}
	go func() {
		for u := range updates {
			concerned := slices.ContainsFunc(d.cfg.Uplinks, func(up vdn.Uplink) bool { return up.Device == u.Attrs().Name })
			if concerned && ctx.Err() == nil {
				d.again()
			}
		}
	}()
	return func() { close(done) }, nil
}
