package packet

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
)

// TestPlaces has the devices of different kinds of nodes.
func TestPlaces(t *testing.T) {
	all := map[int]devices.Device{
		1:  {Index: 1, Name: "lo", Kind: "device"},
		2:  {Index: 2, Name: "eth0", Kind: "device", Ethernet: true},
		3:  {Index: 3, Name: "up0", Kind: "veth", Ethernet: true},
		4:  {Index: 4, Name: "pod0", Kind: "veth", Ethernet: true},
		5:  {Index: 5, Name: "cni0", Kind: "bridge", Ethernet: true},
		6:  {Index: 6, Name: "port0", Kind: "veth", Ethernet: true, Master: 5},
		7:  {Index: 7, Name: "tap0", Kind: "tuntap", Ethernet: true},
		8:  {Index: 8, Name: "eth1", Kind: "device", Ethernet: true, Master: 9},
		9:  {Index: 9, Name: "bond0", Kind: "bond", Ethernet: true},
		10: {Index: 10, Name: "wg0", Kind: "wireguard", Bare: true},
		11: {Index: 11, Name: "vxlan0", Kind: "vxlan", Ethernet: true},
		12: {Index: 12, Name: "ppp0", Kind: "ppp"},
		13: {Index: 13, Name: "red", Kind: "vrf", Ethernet: true},
		14: {Index: 14, Name: "pod1", Kind: "veth", Ethernet: true, Master: 13},
	}
	always := map[int]place{
		2: outside, 4: inside, 6: inside, 7: inside, 9: outside, 10: outsideBare, 11: outside, 13: outside, 14: inside,
	}
	with := func(changes map[int]place) map[int]place {
		m := maps.Clone(always)
		for i, p := range changes {
			if m[i] = p; p == "" {
				delete(m, i)
			}
		}
		return m
	}
	here := map[netip.Addr]int{netip.MustParseAddr("10.244.1.1"): 5}
	passing := map[netip.Addr]int{netip.MustParseAddr("fe80::5"): 5}
	set := func(index int) map[int]bool { return map[int]bool{index: true} }
	for _, tc := range []struct {
		name               string
		defaults, gateways map[int]bool
		uplinks            []string
		holders            map[netip.Addr]int
		want               map[int]place
	}{
		{"a node of its own", set(2), nil, nil, here, with(map[int]place{3: inside})},
		{"a node that is a namespace", set(3), nil, nil, here, with(map[int]place{3: outside})},
		{"without a default route", nil, set(3), nil, here, with(map[int]place{3: outside})},
		{"a bridge to the network", set(5), nil, nil, here, with(map[int]place{3: inside, 5: outside, 6: ""})},
		{"a bridge that the node is not at", set(2), nil, nil, passing, with(map[int]place{3: inside, 6: ""})},
		{"by configuration", set(2), set(4), []string{"up0"}, here, with(map[int]place{3: outside})},
	} {
		v := &devices.View{Devices: all, Defaults: tc.defaults, Gateways: tc.gateways, Uplinks: tc.uplinks, Holders: tc.holders}
		if got := placesOf(v); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestFreePorts(t *testing.T) {
	for _, tc := range []struct{ first, last, from, to int }{
		{32768, 60999, 1024, 29999},
		{1024, 60999, 61000, 65535},
		{10000, 20000, 32768, 65535},
		{1024, 65535, 1024, 1023},
		{1, 29999, 32768, 65535},
		{31000, 65535, 1024, 29999},
	} {
		if from, to := freePorts(tc.first, tc.last); from != tc.from || to != tc.to {
			t.Errorf("without %d to %d: %d to %d, want %d to %d", tc.first, tc.last, from, to, tc.from, tc.to)
		}
	}
}

func TestMasks(t *testing.T) {
	view := &devices.View{
		Devices:  map[int]devices.Device{1: {Index: 1}, 2: {Index: 2, Ethernet: true}, 3: {Index: 3, Ethernet: true}, 4: {Index: 4, Bare: true}},
		Defaults: map[int]bool{3: true},
	}
	at := func(index int, a string, scope netlink.Scope, flags int) netlink.Addr {
		p := netip.MustParsePrefix(a)
		return netlink.Addr{IPNet: network(p), LinkIndex: index, Scope: int(scope), Flags: flags}
	}
	got := masksOf(view, []netlink.Addr{
		at(1, "127.0.0.1/8", netlink.SCOPE_HOST, 0),
		at(2, "10.0.2.1/24", netlink.SCOPE_UNIVERSE, 0), at(2, "10.0.2.2/24", netlink.SCOPE_UNIVERSE, 0),
		at(2, "fe80::1/64", netlink.SCOPE_LINK, 0), at(2, "2001:db8:2::1/64", netlink.SCOPE_UNIVERSE, 0),
		at(3, "10.0.3.1/24", netlink.SCOPE_UNIVERSE, 0), at(3, "2001:db8:3::1/64", netlink.SCOPE_UNIVERSE, unix.IFA_F_TENTATIVE),
		at(4, "10.0.4.1/32", netlink.SCOPE_UNIVERSE, 0),
	})
	mask := func(v4, v6 string) (m packetPacketMask) {
		if m.V4 = addrOf(ip(v4)); v6 != "" {
			m.V6 = addrOf(ip(v6))
		}
		return m
	}
	want := map[uint32]packetPacketMask{
		0: mask("10.0.3.1", "2001:db8:2::1"), 2: mask("10.0.2.1", "2001:db8:2::1"), 3: mask("10.0.3.1", ""), 4: mask("10.0.4.1", ""),
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
