package nexthop_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/nexthop"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestLook looks up an address of each kind.
func TestLook(t *testing.T) {
	ns := testkit.NetNS(t)
	testkit.Do(t, ns, prepare)
	local, link, behind := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6"), netip.MustParseAddr("172.16.1.10")
	silent, narrow := netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("172.16.2.10")
	want := map[netip.Addr]dataplane.Path{
		local:                              {Local: true},
		link:                               {Interface: "eth0", MTU: 1500, MAC: "02:00:00:00:00:06"},
		behind:                             {Interface: "eth0", MTU: 1500, Gateway: link, MAC: "02:00:00:00:00:06"},
		narrow:                             {Interface: "eth0", MTU: 1400, Gateway: link, MAC: "02:00:00:00:00:06"},
		silent:                             {Interface: "eth0", MTU: 1500, Error: "10.0.0.7 does not answer on eth0 (no MAC address)"},
		netip.MustParseAddr("192.0.2.1"):   {Error: "the kernel has no route to it"},
		netip.MustParseAddr("192.0.2.2"):   {Error: "the kernel has no route to it"},
		netip.MustParseAddr("192.0.2.3"):   {Error: "the kernel's routes discard it (blackhole)"},
		netip.MustParseAddr("192.0.2.4"):   {Error: "the kernel's routes prohibit it"},
		netip.MustParseAddr("2001:db8::6"): {Error: "the kernel has no route to it"},
	}
	var to []netip.Addr
	for a := range want {
		to = append(to, a, a)
	}
	testkit.Do(t, ns, func() error {
		got, err := nexthop.Look(to)
		for a, p := range want {
			if got[a] != p {
				t.Errorf("%s: %+v, want %+v", a, got[a], p)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d paths, want %d", len(got), len(want))
		}
		return err
	})
}

// prepare makes a link with a neighbor, one that does not answer, and routes.
func prepare() error {
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1500}, PeerName: "peer"}); err != nil {
		return err
	}
	var index int
	for _, name := range []string{"lo", "peer", "eth0"} {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		index = dev.Attrs().Index
		if err := netlink.LinkSetUp(dev); err != nil {
			return err
		}
	}
	dev, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr("10.0.0.5/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(dev, addr); err != nil {
		return err
	}
	mac, err := net.ParseMAC("02:00:00:00:00:06")
	if err != nil {
		return err
	}
	for _, n := range []*netlink.Neigh{
		{LinkIndex: index, IP: net.ParseIP("10.0.0.6"), HardwareAddr: mac, State: netlink.NUD_PERMANENT},
		{LinkIndex: index, IP: net.ParseIP("10.0.0.7"), State: netlink.NUD_FAILED},
	} {
		if err := netlink.NeighSet(n); err != nil {
			return err
		}
	}
	one := func(a string) *net.IPNet { return &net.IPNet{IP: net.ParseIP(a).To4(), Mask: net.CIDRMask(32, 32)} }
	for _, r := range []*netlink.Route{
		{Dst: one("172.16.1.10"), Gw: net.ParseIP("10.0.0.6"), LinkIndex: index},
		{Dst: one("172.16.2.10"), Gw: net.ParseIP("10.0.0.6"), LinkIndex: index, MTU: 1400},
		{Dst: one("192.0.2.2"), Type: unix.RTN_UNREACHABLE}, {Dst: one("192.0.2.3"), Type: unix.RTN_BLACKHOLE}, {Dst: one("192.0.2.4"), Type: unix.RTN_PROHIBIT},
	} {
		if err := netlink.RouteAdd(r); err != nil {
			return err
		}
	}
	return nil
}
