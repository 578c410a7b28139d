package xdp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/program"
	"github.com/fairlead/fairlead/lab/testkit"
)

// The cached next hop to a backend follows the kernel's tables without an agent: another
// MAC address, another route, no route, and a removed link.
func TestKeptWayFollowsTheKernel(t *testing.T) {
	n := newNet(t)
	c := config()
	c.Interfaces = append(c.Interfaces, "eth1")
	d := n.open(t, c)
	programs, err := d.kernel.Balancer.Clone()
	must(t, err)
	defer programs.Close()
	for _, v6 := range []bool{false, true} {
		upsert(t, d, frontend(service.Tunnel, vips[v6], service.TCP, servers[v6]))
	}
	must(t, d.Close()) // no agent runs
	away := &DataPlane{kernel: &program.Objects{Balancer: programs}}

	to := func(mac net.HardwareAddr) func(v verdict, out []byte) bool {
		return func(v verdict, out []byte) bool { return v == redirect && bytes.Equal(out[:6], mac) }
	}
	onlyVerdict := func(want verdict) func(verdict, []byte) bool {
		return func(v verdict, _ []byte) bool { return v == want }
	}
	other := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	gateways := map[bool]string{false: "172.16.0.1", true: "fd00::1"}
	beyond := map[bool]string{false: "172.17.0.3", true: "fd01::3"}
	for _, v6 := range []bool{false, true} {
		_, server, err := net.ParseCIDR(netip.MustParseAddrPort(servers[v6]).Addr().String() + map[bool]string{false: "/32", true: "/128"}[v6])
		must(t, err)
		for _, step := range []struct {
			name string
			do   func() error
			want func(verdict, []byte) bool
		}{
			{"as it was", func() error { return nil }, to(macGateway)},
			{"another MAC address", func() error { neighbor(t, n.eth0, gateways[v6], other); return nil }, to(other)},
			{"another interface", func() error {
				return netlink.RouteAdd(&netlink.Route{Dst: server, LinkIndex: int(n.eth1), Gw: net.ParseIP(beyond[v6])})
			}, to(macServer1)},
			{"forbidden", func() error { return netlink.RouteReplace(&netlink.Route{Dst: server, Type: 7}) }, onlyVerdict(drop)},
			{"allowed again", func() error { return netlink.RouteDel(&netlink.Route{Dst: server, Type: 7}) }, to(other)},
			{"no neighbor", func() error {
				return netlink.NeighDel(&netlink.Neigh{LinkIndex: int(n.eth0), IP: net.ParseIP(gateways[v6])})
			}, onlyVerdict(pass)},
			{"a neighbor again", func() error { neighbor(t, n.eth0, gateways[v6], macGateway); return nil }, to(macGateway)},
		} {
			testkit.Do(t, n.balancer, step.do)
			in := packet{src: clients[v6], dst: vips[v6], flags: "S"}
			testkit.Eventually(t, patience, func() error {
				if v, out := n.run(t, away, in.bytes(t)); !step.want(v, out) {
					return fmt.Errorf("%s, v6 %v: %v to %x", step.name, v6, v, out[:6])
				}
				return nil
			})
		}
	}
	testkit.Do(t, n.balancer, func() error {
		nic, err := netlink.LinkByName("eth0")
		must(t, err)
		return netlink.LinkSetDown(nic)
	})
	testkit.Eventually(t, patience, func() error {
		if v, _ := n.run(t, away, packet{src: clients[false], dst: vips[false], flags: "S"}.bytes(t)); v != pass {
			return fmt.Errorf("eth0 is down, but the packet is judged %v", v)
		}
		return nil
	})
	n.open(t, c)
}

// When a number gets another owner, the previous one's next hop is not used.
func TestKeptWayBelongsToOneOwner(t *testing.T) {
	n := newNet(t)
	c := config()
	c.Interfaces = append(c.Interfaces, "eth1")
	d := n.open(t, c)
	f := frontend(service.Tunnel, vips[false], service.TCP, "172.16.5.1:80")
	upsert(t, d, f)
	owner := d.programmed[f.Key].members.find(f.Backends[0].Addr).server
	in := packet{src: clients[false], dst: vips[false], flags: "S"}.bytes(t)
	for range 100 { // most of them within one tick
		for addr, mac := range map[string]net.HardwareAddr{"172.16.5.1": macGateway, "172.17.0.3": macServer1} {
			owner.key.addr = netip.AddrPortFrom(netip.MustParseAddr(addr), 80)
			d.servers.generations[owner.id]++
			must(t, d.writeServer(owner))
			if v, out := n.run(t, d, in); v != redirect || !bytes.Equal(out[:6], mac) {
				t.Fatalf("%s: %v to %s, want %s", addr, v, net.HardwareAddr(out[:6]), mac)
			}
		}
	}
}
