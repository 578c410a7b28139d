package cluster

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/topology"
	"github.com/fairlead/fairlead/router"
)

// Table returns the service routes in the router's kernel, regardless of which daemon installed them.
func (c *Cluster) Table() ([]router.Route, error) {
	host := c.Lab.Host(topology.Router)
	if c.opts.Router == RouterFairlead {
		t, err := router.New(router.Config{NetNS: host.Namespace().FD()})
		if err != nil {
			return nil, err
		}
		defer t.Close(false)
		return t.List()
	}
	routes, err := c.kernelRoutes(nil)
	if err != nil {
		return nil, err
	}
	var shown []router.Route
	for _, r := range routes {
		if !c.isService(r) {
			continue
		}
		prefix, _ := netip.ParsePrefix(r.Dst.String())
		route := router.Route{Prefix: prefix, Metric: uint32(r.Priority), Protocol: uint8(r.Protocol)}
		for _, h := range Hops(r) {
			route.Hops = append(route.Hops, router.Hop{Gateway: h, Device: "eth1", Weight: 1})
		}
		shown = append(shown, route)
	}
	return shown, nil
}

func (c *Cluster) isService(r netlink.Route) bool {
	return slices.ContainsFunc(c.Services, func(s *topology.Service) bool { return r.Dst != nil && r.Dst.String() == s.Prefix.String() })
}

// kernelRoutes returns the router's IPv4 routes to a destination; nil for all.
func (c *Cluster) kernelRoutes(dst *net.IPNet) ([]netlink.Route, error) {
	return kernelRoutes(c.Lab.Host(topology.Router), dst)
}

func kernelRoutes(h *lab.Host, dst *net.IPNet) ([]netlink.Route, error) {
	mask := uint64(0)
	if dst != nil {
		mask = netlink.RT_FILTER_DST
	}
	return netlist.Whole(func() ([]netlink.Route, error) {
		return h.Netlink().RouteListFiltered(unix.AF_INET, &netlink.Route{Dst: dst}, mask)
	})
}

// HopsTo returns the next hops that a host's kernel has to an IPv4 destination, sorted.
func HopsTo(h *lab.Host, dst netip.Prefix) (all []netip.Addr, err error) {
	routes, err := kernelRoutes(h, lab.IPNet(dst))
	for _, r := range routes {
		all = append(all, Hops(r)...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, err
}

// Hops returns the gateways of a route, sorted.
func Hops(r netlink.Route) []netip.Addr {
	var all []netip.Addr
	add := func(ip []byte) {
		if a, ok := netip.AddrFromSlice(ip); ok {
			all = append(all, a.Unmap())
		}
	}
	add(r.Gw)
	for _, h := range r.MultiPath {
		add(h.Gw)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// RouterHas reports whether the router's kernel has exactly these next hops for a
// service.
func (c *Cluster) RouterHas(service int, want []string) bool {
	have, err := c.RouterHops(service)
	return err == nil && slices.Equal(have, want)
}

// RouterLeadsTo reports whether the router's kernel forwards a service to the node of
// this load balancer.
func (c *Cluster) RouterLeadsTo(service int, pod topology.Pod) bool {
	have, err := c.RouterHops(service)
	return err == nil && slices.Contains(have, pod.Node.Addr.String())
}

// RouterHops returns the router kernel's next hops for a service, sorted.
func (c *Cluster) RouterHops(service int) (have []string, err error) {
	hops, err := HopsTo(c.Lab.Host(topology.Router), c.Services[service].Prefix)
	for _, h := range hops {
		have = append(have, h.String())
	}
	slices.Sort(have)
	return have, err
}

// Await calls yes repeatedly, at the given pace, and returns the time at which it was
// true; false if it never was within the given time.
func Await(ctx context.Context, pace, within time.Duration, yes func() bool) (time.Time, bool) {
	deadline := time.Now().Add(within)
	for {
		if yes() {
			return time.Now(), true
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return time.Time{}, false
		}
		time.Sleep(pace)
	}
}
