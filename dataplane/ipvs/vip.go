package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/netlist"
)

// vip is an address of frontends. IPVS processes packets for this host, so while a VIP
// has any frontend, it has a route in the local table. An address on a device would work
// too, but the kernel scans all of a device's addresses to add one.
type vip struct {
	keys  []service.Key
	local bool // packets to it are received
	ours  bool // because of Fairlead's route
}

// routeProtocol marks these routes as Fairlead's, as `ip route` shows.
const routeProtocol = 250

func (d *DataPlane) routeTo(addr netip.Addr) *netlink.Route {
	return &netlink.Route{
		Dst:  &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())},
		Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST, Protocol: routeProtocol, LinkIndex: d.loopback,
	}
}

// holdVIP records a VIP's frontend, and makes the VIP local.
func (d *DataPlane) holdVIP(k service.Key) error {
	v := d.vipOf(k)
	if v.local {
		return nil
	}
	err := d.routes.RouteAdd(d.routeTo(k.VIP))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("ipvs: add local address %s: %w", k.VIP, err)
	}
	v.local, v.ours = true, err == nil
	return nil
}

// vipOf returns the VIP of a frontend, and records the frontend there.
func (d *DataPlane) vipOf(k service.Key) *vip {
	v := d.vips[k.VIP]
	if v == nil {
		v = &vip{}
		d.vips[k.VIP] = v
	}
	if !slices.Contains(v.keys, k) {
		v.keys = append(v.keys, k)
	}
	return v
}

// leaveVIP records that a VIP has lost a frontend, and reports whether it was the last.
func (d *DataPlane) leaveVIP(k service.Key) (last bool) {
	v := d.vipOf(k)
	v.keys = slices.DeleteFunc(v.keys, func(o service.Key) bool { return o == k })
	return len(v.keys) == 0
}

// dropVIP removes a VIP without frontends.
func (d *DataPlane) dropVIP(addr netip.Addr) error {
	if d.vips[addr].ours {
		if err := d.removeRoute(addr); err != nil {
			return err
		}
	}
	delete(d.vips, addr)
	return nil
}

func (d *DataPlane) removeRoute(addr netip.Addr) error {
	if err := d.routes.RouteDel(d.routeTo(addr)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ipvs: remove local address %s: %w", addr, err)
	}
	return nil
}

// locals returns this host's local addresses, and whether each is local because of our
// route.
func (d *DataPlane) locals() (map[netip.Addr]bool, error) {
	all := map[netip.Addr]bool{}
	for _, of := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := netlist.Whole(func() ([]netlink.Route, error) {
			return d.routes.RouteListFiltered(of, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL},
				netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		})
		if err != nil {
			return nil, fmt.Errorf("ipvs: list local addresses: %w", err)
		}
		for _, r := range routes {
			if r.Dst == nil {
				continue
			}
			if ones, bits := r.Dst.Mask.Size(); ones == bits {
				a, _ := netip.AddrFromSlice(r.Dst.IP)
				all[a.Unmap()] = r.Protocol == routeProtocol
			}
		}
	}
	return all, nil
}
