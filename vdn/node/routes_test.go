package node

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
)

// TestOthersRoutesStay checks that a domain that claims the addresses by which it is
// reached cannot override the routes to them.
func TestOthersRoutesStay(t *testing.T) {
	testkit.Do(t, testkit.NetNS(t), func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wan"}, PeerName: "far"}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		for _, a := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
			parsed, err := netlink.ParseAddr(a)
			if err == nil {
				err = netlink.AddrAdd(link, parsed)
			}
			if err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		r, err := newRoutes()
		if err != nil {
			return err
		}
		defer r.close()
		before := routesTo(t)
		claimed := []vdn.Route{
			{Dst: netip.MustParsePrefix("192.0.2.0/24"), GW: netip.MustParseAddr("192.0.2.17")},
			{Dst: netip.MustParsePrefix("2001:db8::/64"), GW: netip.MustParseAddr("2001:db8::17")},
		}
		for range 2 {
			if err := r.apply(claimed); err != nil {
				return err
			}
			for _, p := range claimed {
				via, err := netlink.RouteGet(p.GW.AsSlice())
				if err != nil || len(via) != 1 || via[0].Gw != nil {
					t.Errorf("%s is reached by %+v, %v", p.GW, via, err)
				}
			}
		}
		if err := r.apply(nil); err != nil {
			return err
		}
		if after := routesTo(t); after != before {
			t.Errorf("the routes were\n%s\nand are\n%s", before, after)
		}
		return nil
	})
}

// routesTo lists all routes of the main table.
func routesTo(t *testing.T) string {
	t.Helper()
	all, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range all {
		lines = append(lines, fmt.Sprintf("%s via %s proto %d metric %d", r.Dst, r.Gw, r.Protocol, r.Priority))
	}
	return strings.Join(lines, "\n")
}
