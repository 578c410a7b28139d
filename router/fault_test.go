package router

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/flows"
	"github.com/fairlead/fairlead/lab/flows/flowstest"
	"github.com/fairlead/fairlead/lab/testkit"
)

// noCarrier gives the router a second network, 10.8.0.0/16, on a device whose other end
// is down: there is a route, and the kernel rejects every next hop on it. The returned
// function restores the carrier.
func noCarrier(t testing.TB, l *lab.Lab) (carrier func()) {
	t.Helper()
	h := l.Host("router").Netlink()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth2"}, PeerName: "far"}
	if err := h.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr("10.8.0.1/16")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.AddrAdd(pair, addr); err != nil {
		t.Fatal(err)
	}
	if err := h.LinkSetUp(pair); err != nil {
		t.Fatal(err)
	}
	far, err := h.LinkByName("far")
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := h.LinkSetUp(far); err != nil {
			t.Fatal(err)
		}
	}
}

// thousand returns 1,000 prefixes: number i is 10.(64+i/256).(i%256).0/24.
func thousand(nextHops ...string) []advertise.RouteSet {
	all := make([]advertise.RouteSet, 1000)
	for i := range all {
		all[i] = set(fmt.Sprintf("10.%d.%d.0/24 %s", 64+i/256, i%256, strings.Join(nextHops, " ")))[0]
	}
	return all
}

// has returns the number of routes, and the gateways of one of them.
func has(t *testing.T, table *Table, prefix string) (n int, gateways string) {
	t.Helper()
	routes, err := table.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Prefix.String() == prefix {
			for _, h := range r.Hops {
				gateways += " " + h.Gateway.String()
			}
		}
	}
	return len(routes), strings.TrimSpace(gateways)
}

// TestBadNextHopSparesOthers has 1,000 prefixes, one of which has a next hop that the
// kernel rejects. The others are added, changed and removed as usual; the bad one is
// reported, keeps the valid part of its route, and recovers by itself.
func TestBadNextHopSparesOthers(t *testing.T) {
	l := nodes(t)
	carrier := noCarrier(t, l)
	table := open(t, l)
	defer table.Close(true)
	const bad, kept = "10.64.7.0/24", "10.64.8.0/24"
	want := thousand("10.0.0.104", "10.0.0.105")
	want[7] = set(bad + " 10.8.0.9")[0]
	want[8] = set(kept + " 10.0.0.104 10.8.0.9")[0]
	err := table.Set(want)
	for _, p := range []string{bad, kept} {
		if err == nil || !strings.Contains(err.Error(), p+": next hop 10.8.0.9") || !strings.Contains(err.Error(), "network is down: Carrier for nexthop device is down") {
			t.Fatalf("error %v lacks the kernel's message about %s", err, p)
		}
	}
	if n, _ := has(t, table, bad); n != 999 {
		t.Errorf("%d of 999 good routes", n)
	}
	if _, gateways := has(t, table, kept); gateways != "10.0.0.104" {
		t.Errorf("the route with a bad next hop besides a good one has %q", gateways)
	}

	// Other routes are changed and removed, and so are withdrawn next hops of a bad one.
	want[8] = set(kept + " 10.0.0.105 10.8.0.9")[0]
	want[9].NextHops = want[9].NextHops[:1]
	if err := table.Set(want[:500]); err == nil {
		t.Error("the bad next hop is forgotten")
	}
	if n, _ := has(t, table, bad); n != 499 {
		t.Errorf("%d routes after 500 were withdrawn, want 499", n)
	}
	for prefix, gateways := range map[string]string{kept: "10.0.0.105", "10.64.9.0/24": "10.0.0.104"} {
		if _, got := has(t, table, prefix); got != gateways {
			t.Errorf("%s is by %q, want %q", prefix, got, gateways)
		}
	}
	faults := table.Faults()
	if len(faults) != 2 || faults[0].Prefix.String() != bad || faults[0].Since.IsZero() || faults[1].Prefix.String() != kept {
		t.Errorf("faults: %v", faults)
	}

	defer keep(t, table)()
	carrier()
	testkit.Eventually(t, time.Minute, func() error {
		n, one := has(t, table, bad)
		if _, other := has(t, table, kept); n != 500 || one != "10.8.0.9" || other != "10.0.0.105 10.8.0.9" || len(table.Faults()) > 0 {
			return fmt.Errorf("%d routes, %s by %q, %s by %q, faults %v", n, bad, one, kept, other, table.Faults())
		}
		return nil
	})
	if err := table.Failed(); err != nil {
		t.Errorf("healed, but failed: %v", err)
	}
}

// keep runs Table.Keep until the returned function is called.
func keep(t *testing.T, table *Table) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- table.Keep(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestRetriesWithoutChanges checks that a route that conflicts with another program's is installed
// when that one is removed, without any event or call of Set.
func TestRetriesWithoutChanges(t *testing.T) {
	l := nodes(t)
	foreign := open(t, l, func(c *Config) { c.Protocol, c.FirstID = unix.RTPROT_STATIC, 1 })
	mustSet(t, foreign, "10.1.1.0/24 10.0.0.104")
	table := open(t, l)
	defer table.Close(true)
	if err := table.Set(set("10.1.1.0/24 10.0.0.105")); err == nil {
		t.Fatal("Set reported no conflict with another program's route")
	}
	first := table.Faults()[0]
	defer keep(t, table)()
	testkit.Eventually(t, time.Minute, func() error {
		if f := table.Faults(); len(f) != 1 || f[0].Tries < 3 || f[0].Since != first.Since {
			return fmt.Errorf("faults %+v, first %+v: want three tries", f, first)
		}
		return nil
	})
	if err := foreign.Close(true); err != nil {
		t.Fatal(err)
	}
	untilSummary(t, table, "10.1.1.0/24 [10.0.0.105] [1]\n")
}

// onRouter adds an administrator's route to the router.
func onRouter(t *testing.T, l *lab.Lab, r netlink.Route, prefix string) {
	t.Helper()
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		t.Fatal(err)
	}
	h := l.Host("router").Netlink()
	dev, err := h.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	r.Dst, r.Protocol = dst, unix.RTPROT_STATIC
	if len(r.MultiPath) == 0 {
		r.LinkIndex = dev.Attrs().Index
	}
	for _, hop := range r.MultiPath {
		hop.LinkIndex = dev.Attrs().Index
	}
	if err := h.RouteAdd(&r); err != nil {
		t.Fatal(err)
	}
}

func via6(a string) *netlink.Via {
	return &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP(a)}
}

// TestGatewaysOfTheOtherFamily has an IPv4 next hop that is reached through an IPv6
// gateway (RFC 8950), by one path or by several, and one through a gateway that is in
// none of our networks (onlink). Packets must be forwarded to them.
func TestGatewaysOfTheOtherFamily(t *testing.T) {
	l := nodes(t)
	onRouter(t, l, netlink.Route{Via: via6("fd00::105")}, "10.5.0.0/16")
	onRouter(t, l, netlink.Route{MultiPath: []*netlink.NexthopInfo{{Via: via6("fd00::106")}, {Via: via6("fd00::107")}}}, "10.6.0.0/16")
	onRouter(t, l, netlink.Route{Gw: net.ParseIP("172.20.0.1"), Flags: unix.RTNH_F_ONLINK}, "10.7.0.0/16")
	table := open(t, l)
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.5.0.1 10.6.0.1", "10.1.2.0/24 10.7.0.1", "10.1.3.0/24 10.5.0.1")
	const want = `10.1.1.0/24 nhid 100003 proto bgp metric 20
	nexthop via inet6 fd00::105 dev eth0 weight 1
	nexthop via inet6 fd00::106 dev eth0 weight 1
10.1.2.0/24 nhid 100004 via 172.20.0.1 dev eth0 proto bgp metric 20 onlink
10.1.3.0/24 nhid 100005 via inet6 fd00::105 dev eth0 proto bgp metric 20
`
	if got := shown(t, table); got != want {
		t.Errorf("table is\n%swant\n%s", got, want)
	}
	testkit.Do(t, l.Host("router").Namespace(), func() error { return sysctl.SetAll(settings(t, 0)) })
	for name := range flows.Shares(flowstest.Ask(t, ask(t, l, 20))) {
		if name != "node-105" && name != "node-106" {
			t.Errorf("packets went to %s", name)
		}
	}
	again := open(t, l)
	defer again.Close(false)
	mustSet(t, again, "10.1.1.0/24 10.5.0.1 10.6.0.1", "10.1.2.0/24 10.7.0.1", "10.1.3.0/24 10.5.0.1")
	if got := shown(t, again); got != want {
		t.Errorf("the same again changes the table to\n%swas\n%s", got, want)
	}
}

// TestFollowGatewaysOfTheOtherFamily has routes of a daemon whose sessions only have
// link-local addresses, with IPv6 gateways. A route with a next hop without a gateway
// would leave its share to the others, so it is not shadowed.
func TestFollowGatewaysOfTheOtherFamily(t *testing.T) {
	l := nodes(t)
	table := open(t, l, func(c *Config) { c.Metric = DefaultShadowMetric })
	defer table.Close(true)
	b := Shadow{Protocols: []uint8{unix.RTPROT_STATIC}}
	onRouter(t, l, netlink.Route{Priority: 20, MultiPath: []*netlink.NexthopInfo{{Via: via6("fd00::106")}, {Gw: net.ParseIP("10.0.0.105")}}}, "10.6.0.0/16")
	onRouter(t, l, netlink.Route{Priority: 20, MultiPath: []*netlink.NexthopInfo{
		{Via: via6("fd00::106")}, {Gw: net.ParseIP("172.20.0.1"), Flags: unix.RTNH_F_ONLINK}, {}}}, "10.7.0.0/16")
	onRouter(t, l, netlink.Route{Priority: 20, MultiPath: []*netlink.NexthopInfo{
		{Via: via6("fd00::106")}, {Gw: net.ParseIP("172.20.0.1"), Flags: unix.RTNH_F_ONLINK}}}, "10.8.0.0/16")
	if err := table.follow(b); err != nil {
		t.Fatal(err)
	}
	const want = "10.6.0.0/16 [10.0.0.105 fd00::106] [1 1]\n10.8.0.0/16 [172.20.0.1 fd00::106] [1 1]\n"
	if got := summary(t, table); got != want {
		t.Errorf("table is\n%swant\n%s", got, want)
	}
	if f := table.Faults(); len(f) != 1 || f[0].Prefix.String() != "10.7.0.0/16" || !strings.Contains(f[0].Err.Error(), "no gateway") {
		t.Errorf("faults %v", f)
	}
}

// BenchmarkThousandPrefixes adds and removes 1,000 prefixes, with one bad next hop and
// with none.
func BenchmarkThousandPrefixes(b *testing.B) {
	for _, bad := range []bool{false, true} {
		b.Run(map[bool]string{false: "all good", true: "one bad"}[bad], func(b *testing.B) {
			l := nodes(b)
			noCarrier(b, l)
			table := open(b, l)
			want := thousand("10.0.0.104", "10.0.0.105", "10.0.0.106", "10.0.0.107")
			if bad {
				want[500] = set("10.65.244.0/24 10.8.0.9")[0]
			}
			for b.Loop() {
				if err := table.Set(want); (err != nil) != bad {
					b.Fatal(err)
				}
				if err := table.Set(nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
