package router

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit"
)

// plain installs an ordinary multipath route in the router's kernel, like a routing
// daemon: "10.0.0.104*2" is a next hop of weight 2.
func plain(t *testing.T, l *lab.Lab, protocol, metric int, prefix string, hops ...string) netlink.Route {
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
	r := netlink.Route{Dst: dst, Protocol: netlink.RouteProtocol(protocol), Priority: metric}
	for _, hop := range hops {
		gateway, weight := hop, 1
		if a, b, weighted := strings.Cut(hop, "*"); weighted {
			gateway = a
			fmt.Sscan(b, &weight)
		}
		r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: dev.Attrs().Index, Gw: net.ParseIP(gateway), Hops: weight - 1})
	}
	if err := h.RouteReplace(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func untilSummary(t *testing.T, table *Table, want string) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		if got := summary(t, table); got != want {
			return fmt.Errorf("table is\n%swant\n%s", got, want)
		}
		return nil
	})
}

func TestFollow(t *testing.T) {
	l := nodes(t)
	table := open(t, l, func(c *Config) { c.Metric = DefaultShadowMetric })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	b := Shadow{Protocols: []uint8{186}, Accept: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/16")}}
	go func() { done <- table.Follow(ctx, b) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := table.Close(true); err != nil {
			t.Error(err)
		}
	}()
	plain(t, l, 186, 20, "0.0.0.0/0", "10.0.0.104", "10.0.0.105")
	plain(t, l, 186, 20, "172.31.0.0/16", "10.0.0.104", "10.0.0.105") // not accepted
	plain(t, l, 4, 20, "10.4.0.0/16", "10.0.0.104", "10.0.0.105")     // an administrator's
	one := plain(t, l, 186, 20, "10.1.1.0/24", "10.0.0.105*3", "10.0.0.104")
	plain(t, l, 186, 20, "fd00:1:1::/64", "fd00::104", "fd00::105")
	const v6 = "fd00:1:1::/64 [fd00::104 fd00::105] [1 1]\n"
	untilSummary(t, table, "10.1.1.0/24 [10.0.0.104 10.0.0.105] [1 3]\n"+v6)

	plain(t, l, 186, 20, "10.1.1.0/24", "10.0.0.104", "10.0.0.105", "10.0.0.106")
	untilSummary(t, table, "10.1.1.0/24 [10.0.0.104 10.0.0.105 10.0.0.106] [1 1 1]\n"+v6)
	// Someone removes ours: it is restored.
	if err := table.deleteRoute(netip.MustParsePrefix("10.1.1.0/24"), groupOfRoute(t, table, "10.1.1.0/24")); err != nil {
		t.Fatal(err)
	}
	untilSummary(t, table, "10.1.1.0/24 [10.0.0.104 10.0.0.105 10.0.0.106] [1 1 1]\n"+v6)
	// A route with a lower metric hides ours, which is reported.
	plain(t, l, 186, 5, "10.2.0.0/16", "10.0.0.104", "10.0.0.105")
	testkit.Eventually(t, time.Minute, func() error {
		const want = "10.2.0.0/16: its metric 5 is below --metric 10"
		if f := table.Faults(); len(f) != 1 || !strings.Contains(fmt.Sprint(f[0].Prefix, ": ", f[0].Err), want) {
			return fmt.Errorf("faults are %v, want %q", f, want)
		}
		return nil
	})
	if err := l.Host("router").Netlink().RouteDel(&netlink.Route{Dst: one.Dst, Protocol: one.Protocol, Priority: one.Priority}); err != nil {
		t.Fatal(err)
	}
	untilSummary(t, table, v6)
	// The kernel removes routes over a link that is down, both ours and the daemon's.
	h := l.Host("router").Netlink()
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.LinkSetDown(eth0); err != nil {
		t.Fatal(err)
	}
	untilSummary(t, table, "")
	if err := h.LinkSetUp(eth0); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		return h.RouteReplace(&one) // rejected until the link is ready
	})
	plain(t, l, 186, 20, "10.1.1.0/24", "10.0.0.104", "10.0.0.107")
	untilSummary(t, table, "10.1.1.0/24 [10.0.0.104 10.0.0.107] [1 1]\n")
}

func groupOfRoute(t *testing.T, table *Table, prefix string) uint32 {
	t.Helper()
	routes, err := table.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Prefix == netip.MustParsePrefix(prefix) {
			return r.Group
		}
	}
	t.Fatalf("no route to %s", prefix)
	return 0
}
