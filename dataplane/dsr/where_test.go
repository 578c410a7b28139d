package dsr

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
)

// TestPlace has routes to a backend from different kinds of nodes.
func TestPlace(t *testing.T) {
	all := map[int]devices.Device{
		1: {Index: 1, Name: "lo", Kind: "device"},
		2: {Index: 2, Name: "eth0", Kind: "device", Ethernet: true},
		3: {Index: 3, Name: "up0", Kind: "veth", Ethernet: true},
		4: {Index: 4, Name: "pod0", Kind: "veth", Ethernet: true},
		5: {Index: 5, Name: "cni0", Kind: "bridge", Ethernet: true},
		6: {Index: 6, Name: "port0", Kind: "veth", Ethernet: true, Master: 5},
		7: {Index: 7, Name: "port1", Kind: "tuntap", Ethernet: true, Master: 5},
		8: {Index: 8, Name: "eth1", Kind: "device", Ethernet: true, Master: 5},
		9: {Index: 9, Name: "wg0", Kind: "wireguard"},
	}
	server := netip.MustParseAddr("172.16.1.2")
	on := func(index int) netlink.Route { return netlink.Route{LinkIndex: index, Type: unix.RTN_UNICAST} }
	by := func(index int) netlink.Route { r := on(index); r.Gw = net.IPv4(10, 0, 0, 1); return r }
	local := netlink.Route{LinkIndex: 1, Type: unix.RTN_LOCAL}
	set := func(indexes ...int) map[int]bool {
		m := map[int]bool{}
		for _, i := range indexes {
			m[i] = true
		}
		return m
	}
	for _, tc := range []struct {
		name               string
		route              netlink.Route
		defaults, gateways map[int]bool
		uplinks            []string
		holder             int
		place              place
		devices            []int
	}{
		{name: "a pod's own device", route: on(4), defaults: set(2), gateways: set(2), place: inPod, devices: []int{4}},
		{name: "a bridge: its ports to pods", route: on(5), defaults: set(2), gateways: set(2, 5), place: inPod, devices: []int{6, 7}},
		{name: "a bridge to the network", route: on(5), defaults: set(5), gateways: set(5)},
		{name: "the network's own segment", route: on(2), defaults: set(2), gateways: set(2)},
		{name: "the segment of a node that is a namespace", route: on(3), defaults: set(3), gateways: set(3)},
		{name: "the same without a default route", route: on(3), gateways: set(3)},
		{name: "the same by configuration", route: on(3), uplinks: []string{"up0"}},
		{name: "a pod's device with a route by the pod, by configuration", route: on(4), gateways: set(4), uplinks: []string{"up0"}, place: inPod, devices: []int{4}},
		{name: "another node's pod", route: by(2), defaults: set(2), gateways: set(2)},
		{name: "no Ethernet", route: on(9)},
		{name: "a black hole", route: netlink.Route{Type: unix.RTN_BLACKHOLE}},
		{name: "the node itself", route: local, defaults: set(2), gateways: set(2, 4), place: onHost, devices: []int{2, 4}},
		{name: "the node itself, at another device", route: local, defaults: set(2), gateways: set(2), holder: 5, place: onHost, devices: []int{2, 5}},
		{name: "the node itself, by configuration too", route: local, uplinks: []string{"up0"}, place: onHost, devices: []int{3}},
		{name: "the node itself, all alone", route: local, holder: 1},
		{name: "the node itself, behind no Ethernet", route: local, defaults: set(9), gateways: set(9)},
	} {
		v := &view{&devices.View{Devices: all, Defaults: tc.defaults, Gateways: tc.gateways, Uplinks: tc.uplinks, Holders: map[netip.Addr]int{}}}
		if tc.holder != 0 {
			v.Holders[server] = tc.holder
		}
		got := v.place(server, tc.route)
		if got.place != tc.place || !slices.Equal(got.devices, tc.devices) {
			t.Errorf("%s: place %d, devices %v; want %d, %v", tc.name, got.place, got.devices, tc.place, tc.devices)
		}
		if (got.why == "") != (got.place != elsewhere) {
			t.Errorf("%s: why %q", tc.name, got.why)
		}
	}
}
