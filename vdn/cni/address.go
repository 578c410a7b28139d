package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/vdn"
)

// result converts a lease to addresses, routes and DNS.
func (c *call) result(lease vdn.Lease) *current.Result {
	n := lease.Network
	r := &current.Result{CNIVersion: current.ImplementedSpecVersion}
	for _, p := range lease.Attachment.Addresses {
		ip := &current.IPConfig{Address: ipNet(p)}
		if gw := gateway(n, p.Addr()); gw.IsValid() {
			ip.Gateway = gw.AsSlice()
			if c.DefaultRoute {
				r.Routes = append(r.Routes, &types.Route{Dst: ipNet(netip.PrefixFrom(zero(gw), 0)), GW: ip.Gateway})
			}
		}
		r.IPs = append(r.IPs, ip)
	}
	for _, route := range n.Routes {
		via := route.GW
		if !via.IsValid() {
			via = gatewayFor(n, route.Dst)
		}
		r.Routes = append(r.Routes, &types.Route{Dst: ipNet(route.Dst), GW: via.AsSlice()})
	}
	for _, server := range n.DNS.Nameservers {
		r.DNS.Nameservers = append(r.DNS.Nameservers, server.String())
	}
	r.DNS.Domain, r.DNS.Search, r.DNS.Options = n.DNS.Domain, n.DNS.Search, n.DNS.Options
	return r
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func zero(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// gateway returns the gateway of the subnet that contains an address.
func gateway(n vdn.Network, a netip.Addr) netip.Addr {
	s, _ := first(n.Subnets, func(s vdn.Subnet) bool { return s.CIDR.Contains(a) })
	return s.Gateway
}

// gatewayFor returns the gateway of a route's address family.
func gatewayFor(n vdn.Network, to netip.Prefix) netip.Addr {
	s, _ := first(n.Subnets, func(s vdn.Subnet) bool { return s.CIDR.Addr().Is4() == to.Addr().Is4() })
	return s.Gateway
}

// configure sets up a pod's device as its lease says, after it has checked that no other
// host on the segment has the addresses, and announces them there.
func (c *call) configure(p *pod, l netlink.Link, r *current.Result) error {
	name := l.Attrs().Name
	var probed bool
	err := p.run(func() error {
		if err := sysctls(name, c.Network, r); err != nil {
			return err
		}
		if err := p.links.LinkSetUp(l); err != nil {
			return fmt.Errorf("interface %s up: %w", name, err)
		}
		var err error
		probed, err = c.probe(p, l, r)
		return err
	})
	if err != nil {
		return err
	}
	for _, ip := range r.IPs {
		if err := addAddress(p, l, ip.Address, probed); err != nil {
			return fmt.Errorf("interface %s: address %s: %w", name, ip.Address.IP, err)
		}
	}
	for _, route := range r.Routes {
		if err := addRoute(p, l, route); err != nil {
			return err
		}
	}
	return p.run(func() error { return announceAll(l, r) })
}

// sysctls makes the kernel announce addresses again when the pod cycles its device, enables
// IPv6 if needed, and disables router advertisements, so that only the controller assigns
// addresses and routes.
func sysctls(name, network string, r *current.Result) error {
	v4, v6 := "ipv4/conf/"+name+"/", "ipv6/conf/"+name+"/"
	settings := []sysctl.Setting{
		{Path: v4 + "arp_notify", Value: "1", Why: "neighbors must learn where the address is"},
		{Path: v6 + "ndisc_notify", Value: "1", Why: "neighbors must learn where the address is"},
		{Path: v6 + "accept_ra", Value: "0", Why: "addresses and routes come from the controller alone"},
	}
	if _, wants := first(r.IPs, func(ip *current.IPConfig) bool { return ip.Address.IP.To4() == nil }); wants {
		if sysctl.Read(v6+"disable_ipv6") == "" {
			return fail(ErrNode, "network %s has IPv6 addresses, but IPv6 is disabled in this kernel (ipv6.disable=1): enable it, or remove the subnet", network)
		}
		settings = append(settings,
			sysctl.Setting{Path: "ipv6/conf/lo/disable_ipv6", Value: "0", Why: "the network has IPv6 addresses"},
			sysctl.Setting{Path: v6 + "disable_ipv6", Value: "0", Why: "the network has IPv6 addresses"},
			sysctl.Setting{Path: v6 + "keep_addr_on_down", Value: "1", Why: "the address is the pod's as long as it lives"})
	}
	if err := sysctl.SetAll(settings); err != nil {
		return fail(ErrNode, "network %s: %v", network, err)
	}
	return nil
}

// addAddress skips the kernel's duplicate address detection, which takes a second, if the
// plugin's own probe ran.
func addAddress(p *pod, l netlink.Link, address net.IPNet, probed bool) error {
	a := &netlink.Addr{IPNet: &address}
	if probed && address.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD
	}
	return p.links.AddrAdd(l, a)
}

func addRoute(p *pod, l netlink.Link, r *types.Route) error {
	route := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: &r.Dst, Gw: r.GW}
	if r.GW == nil {
		route.Scope = netlink.SCOPE_LINK
	}
	err := p.links.RouteAdd(route)
	switch ones, _ := r.Dst.Mask.Size(); {
	case errors.Is(err, unix.EEXIST) && ones == 0:
		return fail(ErrTaken, "route %s via %s: the pod already has a default route: set \"defaultRoute\": false for secondary networks", r.Dst.String(), r.GW)
	case errors.Is(err, unix.EEXIST):
		return fail(ErrTaken, "route %s via %s: another interface of the pod already has this route: is the pod attached to this network twice?", r.Dst.String(), r.GW)
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return fail(types.ErrInvalidNetworkConfig, "route %s via %s: %v: the next hop must be in one of the network's subnets", r.Dst.String(), r.GW, err)
	case err != nil:
		return fmt.Errorf("route %s via %s: %w", r.Dst.String(), r.GW, err)
	}
	return nil
}
