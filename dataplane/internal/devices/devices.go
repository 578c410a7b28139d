// Package devices describes a node's network devices for data planes that attach to them:
// which devices exist, which of them connect to the network, and when that changes.
package devices

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
)

// Device is a network device, with the properties needed here.
type Device struct {
	Index, Master int
	Name, Kind    string
	Ethernet      bool    // and not the loopback
	MAC           [6]byte // zeros if it has none of this length
	Bare          bool    // packets without link header: WireGuard, IP tunnels
}

// View contains the node's devices and how its routes use them.
type View struct {
	Devices map[int]Device
	// Defaults have a default route, Gateways any route with a gateway.
	Defaults, Gateways map[int]bool
	Holders            map[netip.Addr]int
	Uplinks            []string // as configured; empty: detect
}

// bare are the kinds of links without headers, with netlink's names.
var bare = []string{"none", "ipip", "tunnel6", "sit"}

// Look reads the view from the kernel, in nl's network namespace.
func Look(nl *netlink.Handle, uplinks []string) (*View, error) {
	v := &View{
		Devices: map[int]Device{}, Defaults: map[int]bool{}, Gateways: map[int]bool{},
		Holders: map[netip.Addr]int{}, Uplinks: uplinks,
	}
	links, err := netlist.Whole(nl.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		d := Device{
			Index: a.Index, Master: a.MasterIndex, Name: a.Name, Kind: l.Type(),
			Ethernet: a.EncapType == "ether" && a.Flags&net.FlagLoopback == 0,
			Bare:     slices.Contains(bare, a.EncapType),
		}
		if len(a.HardwareAddr) == len(d.MAC) {
			copy(d.MAC[:], a.HardwareAddr)
		}
		v.Devices[a.Index] = d
	}
	addrs, err := netlist.Whole(func() ([]netlink.Addr, error) { return nl.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			v.Holders[ip.Unmap()] = a.LinkIndex
		}
	}
	all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	rs, err := netlist.Whole(func() ([]netlink.Route, error) {
		return nl.RouteListFiltered(netlink.FAMILY_ALL, all, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, route := range rs {
		v.addRoute(route)
	}
	return v, nil
}

func (v *View) addRoute(route netlink.Route) {
	hops := route.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: route.LinkIndex, Gw: route.Gw, Via: route.Via}}
	}
	for _, hop := range hops {
		if isDefault(route) && hop.LinkIndex != 0 {
			v.Defaults[hop.LinkIndex] = true
		}
		if hop.Gw != nil || hop.Via != nil {
			v.Gateways[hop.LinkIndex] = true
		}
	}
}

func isDefault(route netlink.Route) bool {
	if route.Type != unix.RTN_UNICAST {
		return false
	}
	if route.Dst == nil {
		return true
	}
	ones, _ := route.Dst.Mask.Size()
	return ones == 0
}

// Entrances are the devices through which packets enter the node: those with routes to
// others, which may also be pods (a load balancer).
func (v *View) Entrances() []int {
	found := map[int]bool{}
	maps.Copy(found, v.Gateways)
	maps.Copy(found, v.Defaults)
	for _, d := range v.Devices {
		if slices.Contains(v.Uplinks, d.Name) {
			found[d.Index] = true
		}
	}
	maps.DeleteFunc(found, func(index int, _ bool) bool { return !v.Devices[index].Ethernet })
	return slices.Sorted(maps.Keys(found))
}

// IsPodKind reports whether pods or virtual machines are behind this kind of device.
func IsPodKind(kind string) bool {
	return kind == "veth" || kind == "bridge" || kind == "tuntap"
}
