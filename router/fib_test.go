package router

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/flows"
	"github.com/fairlead/fairlead/lab/flows/flowstest"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

func TestMain(m *testing.M) { refusals.Main(m) }

const vip = "10.1.1.1"

// nodes builds the upstream side of the paper's Fig. 11:
//
//	client 192.168.0.2 ── router .1 / 10.0.0.110 ── switch ── node-104 ... node-107
//
// Every node answers at the VIP, so that a packet shows to which one it went.
func nodes(t testing.TB) *lab.Lab {
	t.Helper()
	top := lab.Topology{
		Hosts:    []lab.HostSpec{{Name: "client"}, {Name: "router"}},
		Switches: []lab.SwitchSpec{{Name: "nodenet"}},
		Links: []lab.Link{
			{A: lab.At("client", "eth0", "192.168.0.2/24").Via("192.168.0.1", "default"), B: lab.At("router", "eth1", "192.168.0.1/24")},
			{A: lab.At("router", "eth0", "10.0.0.110/16", "fd00::110/64"), B: lab.Port("nodenet")},
		},
	}
	for n := 104; n <= 107; n++ {
		name := fmt.Sprintf("node-%d", n)
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: name, Loopback: []string{vip + "/32"}})
		top.Links = append(top.Links, lab.Link{
			A: lab.At(name, "eth0", fmt.Sprintf("10.0.0.%d/16", n), fmt.Sprintf("fd00::%d/64", n)).Via("10.0.0.110", "192.168.0.0/24"),
			B: lab.Port("nodenet")})
	}
	return labtest.Build(t, top)
}

func open(t testing.TB, l *lab.Lab, change ...func(*Config)) *Table {
	t.Helper()
	c := Config{NetNS: l.Host("router").Namespace().FD()}
	for _, f := range change {
		f(&c)
	}
	table, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// set parses "10.1.1.0/24 10.0.0.105 10.0.0.106".
func set(lines ...string) []advertise.RouteSet {
	var out []advertise.RouteSet
	for _, l := range lines {
		words := strings.Fields(l)
		rs := advertise.RouteSet{Prefix: netip.MustParsePrefix(words[0])}
		for _, w := range words[1:] {
			rs.NextHops = append(rs.NextHops, netip.MustParseAddr(w))
		}
		out = append(out, rs)
	}
	return out
}

func mustSet(t *testing.T, table *Table, lines ...string) {
	t.Helper()
	if err := table.Set(set(lines...)); err != nil {
		t.Fatal(err)
	}
}

func shown(t *testing.T, table *Table) string {
	t.Helper()
	rs, err := table.List()
	if err != nil {
		t.Fatal(err)
	}
	return Format(rs)
}

// The golden text is the output of iproute2 6.1 for the same kernel table.
func TestSetAsIPRouteShows(t *testing.T) {
	table := open(t, nodes(t))
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.0.0.106")
	const one = "10.1.1.0/24 nhid 100001 via 10.0.0.106 dev eth0 proto bgp metric 20\n"
	if got := shown(t, table); got != one {
		t.Errorf("one balancer:\n%swant\n%s", got, one)
	}
	mustSet(t, table, "10.1.1.0/24 10.0.0.107 10.0.0.105 10.0.0.106", "10.1.2.0/24 10.0.0.106 10.0.0.107", "fd00:1:1::/64 fd00::105 fd00::106", "fd00:1:2::1/128 fd00::105")
	const all = `10.1.1.0/24 nhid 100001 proto bgp metric 20
	nexthop via 10.0.0.105 dev eth0 weight 1
	nexthop via 10.0.0.106 dev eth0 weight 1
	nexthop via 10.0.0.107 dev eth0 weight 1
10.1.2.0/24 nhid 100006 proto bgp metric 20
	nexthop via 10.0.0.106 dev eth0 weight 1
	nexthop via 10.0.0.107 dev eth0 weight 1
fd00:1:1::/64 nhid 100007 proto bgp metric 20 pref medium
	nexthop via fd00::105 dev eth0 weight 1
	nexthop via fd00::106 dev eth0 weight 1
fd00:1:2::1 nhid 100008 proto bgp metric 20 pref medium
	nexthop via fd00::105 dev eth0 weight 1
`
	if got := shown(t, table); got != all {
		t.Errorf("three balancers and two, IPv6 too:\n%swant\n%s", got, all)
	}
	mustSet(t, table)
	if got := shown(t, table); got != "" {
		t.Errorf("after the empty set:\n%s", got)
	}
	if left, err := table.listNexthops(); err != nil || len(left) != 0 {
		t.Errorf("next hops left: %v, %v", left, err)
	}
}

// ask opens flows from the client to the VIP, at which the nodes answer.
func ask(t *testing.T, l *lab.Lab, n int) *flows.Flows {
	t.Helper()
	to := netip.MustParseAddrPort(vip + ":7")
	flowstest.Answer(t, l, to, "node-104", "node-105", "node-106", "node-107")
	return flowstest.Open(t, l, "client", netip.MustParseAddr("192.168.0.2"), to, n)
}

func TestOnlyTheDeadHopsFlowsMove(t *testing.T) {
	l := nodes(t)
	var restore func() error
	testkit.Do(t, l.Host("router").Namespace(), func() (err error) {
		restore, err = sysctl.Change(settings(t, 0))
		return err
	})
	defer l.Host("router").Do(func() error { return restore() })
	table := open(t, l)
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.0.0.104 10.0.0.105 10.0.0.106 10.0.0.107")

	const many = 200
	f := ask(t, l, many)
	four := flowstest.Ask(t, f)
	share := flows.Shares(four)
	for n, s := range share {
		if s < many/10 {
			t.Errorf("%s has %d of %d flows: %v", n, s, many, share)
		}
	}
	t.Logf("shares of four: %v", share)
	if m := flows.Moved(four, flowstest.Ask(t, f)); len(m) != 0 {
		t.Errorf("flows moved though no route changed: %v", m)
	}
	mustSet(t, table, "10.1.1.0/24 10.0.0.104 10.0.0.105 10.0.0.107")
	three := flowstest.Ask(t, f)
	if m := flows.Moved(four, three); len(m) != 1 || m["node-106"] != share["node-106"] {
		t.Errorf("node-106 left with %d flows; moved were %v", share["node-106"], m)
	}
	mustSet(t, table, "10.1.1.0/24 10.0.0.104 10.0.0.105 10.0.0.106 10.0.0.107")
	back := 0
	for _, n := range flows.Moved(three, flowstest.Ask(t, f)) {
		back += n
	}
	if back == 0 || back > many/2 {
		t.Errorf("node-106 came back: %d of %d flows moved, want about a quarter, at once", back, many)
	}
}

func TestBucketsStay(t *testing.T) {
	table := open(t, nodes(t))
	defer table.Close(true)
	p := netip.MustParsePrefix("10.1.1.0/24")
	mustSet(t, table, "10.1.1.0/24 10.0.0.104 10.0.0.105 10.0.0.106")
	before, err := table.Buckets(p)
	if err != nil || len(before) != DefaultBuckets {
		t.Fatalf("%d buckets, %v", len(before), err)
	}
	mustSet(t, table, "10.1.1.0/24 10.0.0.104 10.0.0.106")
	after, err := table.Buckets(p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		if before[i] != netip.MustParseAddr("10.0.0.105") && before[i] != after[i] {
			t.Fatalf("bucket %d went from %s to %s", i, before[i], after[i])
		}
	}
}

func TestRestartAdoptsAndSparesOthers(t *testing.T) {
	l := nodes(t)
	foreign := open(t, l, func(c *Config) { c.Protocol, c.FirstID, c.Metric = unix.RTPROT_STATIC, 1, 5 })
	if err := foreign.Set(set("10.9.0.0/16 10.0.0.104", "10.1.1.0/24 10.0.0.104")); err != nil {
		t.Fatal(err)
	}
	others := shown(t, foreign)

	first := open(t, l)
	mustSet(t, first, "10.1.1.0/24 10.0.0.105 10.0.0.106", "10.1.2.0/24 10.0.0.106")
	held, buckets := shown(t, first), mustBuckets(t, first)
	if err := first.Close(false); err != nil {
		t.Fatal(err)
	}
	second := open(t, l)
	if got := shown(t, second); got != held {
		t.Errorf("after the restart:\n%swant\n%s", got, held)
	}
	mustSet(t, second, "10.1.1.0/24 10.0.0.105 10.0.0.106", "10.1.2.0/24 10.0.0.106")
	if got := shown(t, second); got != held || !slices.Equal(mustBuckets(t, second), buckets) {
		t.Errorf("the same set again changed the table:\n%swant\n%s", got, held)
	}
	mustSet(t, second, "10.1.1.0/24 10.0.0.106 10.0.0.107")
	rs, _ := second.List()
	if len(rs) != 1 || rs[0].Group != groupOf(held) || len(rs[0].Hops) != 2 {
		t.Errorf("group not changed in place:\n%swas\n%s", Format(rs), held)
	}
	if err := second.Close(true); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, foreign); got != others {
		t.Errorf("another program's routes:\n%swant\n%s", got, others)
	}
	third := open(t, l)
	if got := shown(t, third); got != "" {
		t.Errorf("left after removal:\n%s", got)
	}
	third.Close(false)
	foreign.Close(true)
}

func mustBuckets(t *testing.T, table *Table) []netip.Addr {
	t.Helper()
	b, err := table.Buckets(netip.MustParsePrefix("10.1.1.0/24"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func groupOf(text string) (id uint32) {
	fmt.Sscanf(strings.Fields(text)[2], "%d", &id)
	return id
}

func TestErrorsNameTheRoute(t *testing.T) {
	l := nodes(t)
	foreign := open(t, l, func(c *Config) { c.Protocol, c.FirstID = unix.RTPROT_STATIC, 1 })
	defer foreign.Close(true)
	if err := foreign.Set(set("10.1.1.0/24 10.0.0.104")); err != nil {
		t.Fatal(err)
	}
	table := open(t, l)
	defer table.Close(true)
	err := table.Set(set("10.1.1.0/24 10.0.0.105", "10.1.2.0/24 10.0.0.105 172.31.0.1", "10.1.3.0/24 10.0.0.110"))
	for _, want := range []string{
		"10.1.1.0/24: another program has a route to this prefix with metric 20",
		"10.1.2.0/24: next hop 172.31.0.1: no route to it",
		"10.1.3.0/24: next hop 10.0.0.110 is an address of this machine",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
	if got := shown(t, table); !strings.Contains(got, "10.1.2.0/24 nhid") || strings.Count(got, "\n") != 1 {
		t.Errorf("what could be done was not:\n%s", got)
	}
	if others := shown(t, foreign); !strings.Contains(others, "10.1.1.0/24 nhid 2 via 10.0.0.104 dev eth0 proto static") {
		t.Errorf("another program's route was touched:\n%s", others)
	}
}

// A table that nobody has used yet is not an error.
func TestTableOfItsOwn(t *testing.T) {
	table := open(t, nodes(t), func(c *Config) { c.Table = 1000 })
	defer table.Close(true)
	if got := shown(t, table); got != "" {
		t.Errorf("an empty table shows\n%s", got)
	}
	mustSet(t, table, "10.1.1.0/24 10.0.0.106", "fd00:1:2::1/128 fd00::105")
	if got := shown(t, table); strings.Count(got, "nhid") != 2 {
		t.Errorf("want two routes, got\n%s", got)
	}
}

func TestGatewaysTakeTheirShare(t *testing.T) {
	l := nodes(t)
	err := l.Host("router").Do(func() error {
		via, err := New(Config{Protocol: unix.RTPROT_STATIC, FirstID: 1, Metric: 1})
		if err != nil {
			return err
		}
		defer via.Close(false)
		return via.Set(set("10.7.0.0/16 10.0.0.104"))
	})
	if err != nil {
		t.Fatal(err)
	}
	table := open(t, l)
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.0.0.105 10.7.0.1 10.7.0.2")
	want := "nexthop via 10.0.0.104 dev eth0 weight 2\n\tnexthop via 10.0.0.105 dev eth0 weight 1"
	if got := shown(t, table); !strings.Contains(got, want) {
		t.Errorf("two balancers behind one gateway:\n%swant\n%s", got, want)
	}
}

func TestPlainGroups(t *testing.T) {
	l := nodes(t)
	plain := open(t, l, func(c *Config) { c.Plain = true })
	mustSet(t, plain, "10.1.1.0/24 10.0.0.105 10.0.0.106")
	rs, _ := plain.List()
	if plain.Plain() == "" || len(rs) != 1 || rs[0].Resilient {
		t.Errorf("requested plain groups: %q, %+v", plain.Plain(), rs)
	}
	plain.Close(false)
	table := open(t, l)
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.0.0.105 10.0.0.106")
	if rs, _ := table.List(); table.Plain() != "" || len(rs) != 1 || !rs[0].Resilient || len(rs[0].Hops) != 2 {
		t.Errorf("a plain group was not made resilient: %q, %+v", table.Plain(), rs)
	}
}

func TestKeepHealsAfterALinkWentDown(t *testing.T) {
	l := nodes(t)
	table := open(t, l)
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.0.0.105 10.0.0.106")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- table.Keep(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	router := l.Host("router")
	eth0, err := router.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := router.Netlink().LinkSetDown(eth0); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, table); got != "" {
		t.Errorf("the kernel kept routes over a link that is down:\n%s", got)
	}
	if err := router.Netlink().LinkSetUp(eth0); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		if got := shown(t, table); strings.Count(got, "nexthop via") != 2 {
			return fmt.Errorf("table is\n%s", got)
		}
		return nil
	})
}

func settings(t *testing.T, seed uint32) []sysctl.Setting {
	t.Helper()
	s, err := RouterSysctls(seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestHashAlike has a second router, which is the first one with different next-hop IDs,
// make the same choices as the first if both have the same seed.
func TestHashAlike(t *testing.T) {
	l := nodes(t)
	hash := func(seed uint32) {
		t.Helper()
		testkit.Do(t, l.Host("router").Namespace(), func() error {
			s, err := RouterSysctls(seed)
			if err != nil && strings.Contains(err.Error(), "Linux 6.11") {
				t.Skip(err)
			}
			if err != nil {
				return err
			}
			return sysctl.SetAll(s)
		})
	}
	f := ask(t, l, 100)
	choices := func(seed, first uint32) []string {
		t.Helper()
		hash(seed)
		table := open(t, l, func(c *Config) { c.FirstID = first })
		defer table.Close(true)
		mustSet(t, table, "10.1.1.0/24 10.0.0.107 10.0.0.105 10.0.0.104 10.0.0.106")
		return flowstest.Ask(t, f)
	}
	one := choices(4711, DefaultFirstID)
	if other := choices(4712, DefaultFirstID); slices.Equal(one, other) {
		t.Error("another seed changes nothing: this test could not fail")
	}
	if again := choices(4711, 3*DefaultFirstID); !slices.Equal(one, again) {
		t.Errorf("with the same seed %v of 100 flows go elsewhere", flows.Moved(one, again))
	}
}

func TestSysctlsAndBack(t *testing.T) {
	ns := testkit.NetNS(t)
	testkit.Do(t, ns, func() error {
		read := func(name string) string {
			b, _ := os.ReadFile("/proc/sys/net/" + name)
			return strings.TrimSpace(string(b))
		}
		restore, err := sysctl.Change(settings(t, 0))
		if err != nil {
			return err
		}
		for _, s := range settings(t, 0) {
			if got := read(s.Path); got != s.Value {
				t.Errorf("%s is %s, want %s", s.Path, got, s.Value)
			}
			if s.Why == "" {
				t.Errorf("%s has no reason", s.Path)
			}
		}
		if err := restore(); err != nil {
			return err
		}
		if p, f := read("ipv4/fib_multipath_hash_policy"), read("ipv4/ip_forward"); p != "0" || f != "0" {
			t.Errorf("after restore: hash policy %s, forwarding %s", p, f)
		}
		_, err = sysctl.Change([]sysctl.Setting{{Path: "ipv4/ip_forward", Value: "1"}, {Path: "ipv4/no_such_thing", Value: "1", Why: "test"}})
		if err == nil || !strings.Contains(err.Error(), "net.ipv4.no_such_thing") {
			t.Errorf("unknown sysctl: %v", err)
		}
		if f := read("ipv4/ip_forward"); f != "0" {
			t.Errorf("forwarding is %s after a failure", f)
		}
		return nil
	})
}
