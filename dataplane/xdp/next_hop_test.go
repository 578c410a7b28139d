package xdp

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestChangesEmptyTheNextHopCache changes all that a next hop depends on, one by one.
func TestChangesEmptyTheNextHopCache(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	gateway := func(state int, mac net.HardwareAddr) error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: int(n.eth0), IP: net.ParseIP("172.16.0.1"), HardwareAddr: mac, State: state})
	}
	_, dst, _ := net.ParseCIDR("10.9.0.0/16")
	added := &netlink.Route{LinkIndex: int(n.eth0), Dst: dst}
	rule := netlink.NewRule()
	rule.Priority, rule.Table = 100, 100
	eth0 := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: int(n.eth0)}}
	address, err := netlink.ParseAddr("172.16.7.1/32")
	must(t, err)
	for _, change := range []struct {
		name string
		make func() error
	}{
		{"the first report of a neighbor", func() error { return gateway(netlink.NUD_REACHABLE, macGateway) }},
		{"its MAC address", func() error { return gateway(netlink.NUD_REACHABLE, macServer1) }},
		{"it fails", func() error { return gateway(netlink.NUD_FAILED, macServer1) }},
		{"it is back", func() error { return gateway(netlink.NUD_PERMANENT, macGateway) }},
		{"a route", func() error { return netlink.RouteAdd(added) }},
		{"no route", func() error { return netlink.RouteDel(added) }},
		{"a rule", func() error { return netlink.RuleAdd(rule) }},
		{"an address", func() error { return netlink.AddrAdd(eth0, address) }},
		{"an MTU", func() error { return netlink.LinkSetMTU(eth0, 1400) }},
	} {
		before := routesVersion(t, d)
		testkit.Do(t, n.balancer, change.make)
		testkit.Eventually(t, patience, func() error {
			if routesVersion(t, d) == before {
				return fmt.Errorf("%s leaves the cache as it was", change.name)
			}
			return nil
		})
	}
}

// TestConfirmedNeighborsStayCached: the kernel reports each confirmation of a neighbor.
func TestConfirmedNeighborsStayCached(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	set := func(state int, mac net.HardwareAddr) {
		testkit.Do(t, n.balancer, func() error {
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: int(n.eth0), IP: net.ParseIP("172.16.0.1"), HardwareAddr: mac, State: state})
		})
	}
	changed := func(from uint32) {
		testkit.Eventually(t, patience, func() error {
			if routesVersion(t, d) == from {
				return fmt.Errorf("no change is seen")
			}
			return nil
		})
	}
	first := routesVersion(t, d)
	set(netlink.NUD_REACHABLE, macServer1)
	changed(first)
	// Something else may change meanwhile, such as an address that becomes valid.
	testkit.Eventually(t, patience, func() error {
		before := routesVersion(t, d)
		for range 10 {
			set(netlink.NUD_STALE, macServer1)
			set(netlink.NUD_REACHABLE, macServer1)
			time.Sleep(5 * time.Millisecond) // more than the pause between two changes
		}
		if now := routesVersion(t, d); now != before {
			return fmt.Errorf("%d changes were seen, want none", (now-before)>>16)
		}
		return nil
	})
	last := routesVersion(t, d)
	set(netlink.NUD_REACHABLE, macGateway)
	changed(last)
}

// TestNextHopsAreCachedWhileTheAgentWatches: for longer than a clock tick only then.
func TestNextHopsAreCachedWhileTheAgentWatches(t *testing.T) {
	n := newNet(t)
	var d *DataPlane
	frame := packet{src: clients[false], dst: vips[false]}.bytes(t)
	// Returns the last tick for which a next hop is cached.
	run := func() (until uint64) {
		if v, _ := n.run(t, d, frame); v != redirect {
			t.Fatalf("the packet's verdict is %v", v)
		}
		must(t, bpf.EachCPU(d.kernel.ServerCpu, 1, func(c bpf.BalancerServerCpu) { until = max(until, c.Hop.Tick) }))
		return until
	}
	// Reports whether the agent's end shortens that. On a busy machine, many ticks may
	// pass between the two packets.
	shortened := func() bool {
		d = n.open(t, config())
		upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
		watched := run()
		d.routes.Close()
		d.routes = nil
		must(t, bpf.ZeroCPUs(d.kernel.ServerCpu, 1))
		return run() < watched
	}
	for try := 1; !shortened(); try++ {
		if try == 10 {
			t.Fatal("without an agent, next hops are cached for as long as with one")
		}
		must(t, d.Detach())
	}
	last := run()
	testkit.Eventually(t, patience, func() error {
		if run() == last {
			return fmt.Errorf("without an agent, the next hop is still that of tick %d", last)
		}
		return nil
	})
}

// TestPacketsFollowANeighbor is the same from outside.
func TestPacketsFollowANeighbor(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
	frame := packet{src: clients[false], dst: vips[false]}.bytes(t)
	for _, mac := range []net.HardwareAddr{macGateway, macServer1, macGateway} {
		testkit.Do(t, n.balancer, func() error { neighbor(t, n.eth0, "172.16.0.1", mac); return nil })
		testkit.Eventually(t, patience, func() error {
			if _, out := n.run(t, d, frame); !bytes.Equal(out[:6], mac) {
				return fmt.Errorf("packets go to %v, want %v", net.HardwareAddr(out[:6]), mac)
			}
			return nil
		})
	}
}

func routesVersion(t *testing.T, d *DataPlane) (v uint32) {
	t.Helper()
	must(t, d.kernel.RoutesVersion.Get(&v))
	return v
}
