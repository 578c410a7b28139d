package xdp

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/lab/testkit"
)

// If one interface is native and one generic, nothing is redirected to the generic one,
// which would lose it: it goes through the kernel.
func TestNativeWithGeneric(t *testing.T) {
	n := newNet(t)
	testkit.Do(t, n.outside, func() error {
		setOffload(t, "net1", unix.ETHTOOL_SGRO, 0)
		return nil
	})
	c := config()
	c.Interfaces = []string{"eth0", "eth1"}
	d := n.open(t, c)
	if lines := d.Describe().Attached; lines[0] != "eth0: native" || !strings.HasPrefix(lines[1], "eth1: generic: ") {
		t.Fatalf("attached %q", lines)
	}
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, "172.17.0.3:80"))
	in := packet{src: clients[false], dst: vips[false]}
	o := &outer{src: owns[false], dst: "172.17.0.3", ttl: 64}
	row{name: "from native to generic", in: in, verdict: pass, out: func(p *packet) { p.outer = o }}.check(t, n, d)

	out := in
	out.outer, out.from, out.to = &outer{src: owns[false], dst: "172.17.0.3", ttl: 63}, macEth1, macServer1
	testkit.Do(t, n.balancer, func() error {
		in.from, in.to = macServer1, macEth1
		frame := in.bytes(t)
		opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: bpf.Context{DataEnd: uint32(len(frame)), IngressIfindex: n.eth1}}
		v, err := d.kernel.Balancer.Run(&opts)
		if verdict(v) != tx || !bytes.Equal(opts.DataOut, out.bytes(t)) {
			t.Errorf("back out of the generic one: %v\n got %x\nwant %x", verdict(v), opts.DataOut, out.bytes(t))
		}
		return err
	})
}

// A bond: packets arrive on its members and leave by the bond, including those that go
// back without a route lookup.
func TestBond(t *testing.T) {
	n := newNet(t)
	testkit.Do(t, n.balancer, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "bond0"
		bond := netlink.NewLinkBond(attrs)
		bond.Mode, bond.Miimon = netlink.BOND_MODE_BALANCE_XOR, 10
		if err := netlink.LinkAdd(bond); errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("this kernel has no bonds")
		} else if err != nil {
			return err
		}
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.LinkSetDown(eth0))
		must(t, netlink.LinkSetBondSlave(eth0, bond))
		must(t, netlink.LinkSetUp(bond))
		master, err := netlink.LinkByName("bond0")
		must(t, err)
		addr, err := netlink.ParseAddr("172.16.0.2/24")
		must(t, err)
		must(t, netlink.AddrReplace(master, addr))
		neighbor(t, uint32(master.Attrs().Index), "172.16.0.1", macGateway)
		route(t, netlink.Route{LinkIndex: master.Attrs().Index, Gw: net.ParseIP("172.16.0.1")})
		return nil
	})
	c := config()
	c.Interfaces = []string{"bond0"}
	d := n.open(t, c)
	if lines := d.Describe().Attached; lines[0] != "bond0: native" {
		t.Errorf("attached %q", lines)
	}
	if !n.tagsShown(t, "eth0") {
		t.Error("the bond's member hides tags")
	}
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
	in, out := tunnelled(t)
	w := n.taggedEnd(t)
	must(t, w.exchange(in, out))
	ping := icmp{packet: packet{src: addrOf(clients[false]), dst: addrOf(vips[false])}, kind: 8, rest: 7, body: []byte("ping")}
	pong := icmp{packet: packet{src: ping.dst, dst: ping.src, from: macEth0, to: macGateway}, rest: 7, body: ping.body}
	must(t, w.exchange(ping.bytes(t), pong.bytes(t)))
	w.exchangeTagged(t, 7, in, out)
}

// The program attaches to every device with Ethernet frames: one without native XDP uses
// the generic mode, and reports why.
func TestEveryDeviceTakesAProgram(t *testing.T) {
	n := newNet(t)
	attrs := func(name string) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name = name
		return a
	}
	on := func(a netlink.LinkAttrs) netlink.LinkAttrs {
		a.ParentIndex = int(n.eth1)
		return a
	}
	devices := []netlink.Link{
		&netlink.Bridge{LinkAttrs: attrs("bridge0")},
		&netlink.Macvlan{LinkAttrs: on(attrs("macvlan0")), Mode: netlink.MACVLAN_MODE_BRIDGE},
		&netlink.Vxlan{LinkAttrs: attrs("vxlan0"), VxlanId: 7, VtepDevIndex: int(n.eth1), Port: 4789},
		&netlink.Tuntap{LinkAttrs: attrs("tap0"), Mode: netlink.TUNTAP_MODE_TAP},
		&netlink.Vlan{LinkAttrs: on(attrs("vlan0")), VlanId: 5},
		netlink.NewLinkBond(attrs("bond0")),
		&netlink.Dummy{LinkAttrs: attrs("dummy0")},
	}
	c := config()
	c.Interfaces = nil
	testkit.Do(t, n.balancer, func() error {
		for _, l := range devices {
			err := netlink.LinkAdd(l)
			if errors.Is(err, unix.EOPNOTSUPP) {
				t.Logf("this kernel has no %s", l.Type())
				continue
			}
			if err != nil {
				return err
			}
			c.Interfaces = append(c.Interfaces, l.Attrs().Name)
		}
		return nil
	})
	if len(c.Interfaces) < 4 {
		t.Fatalf("only %q", c.Interfaces)
	}
	for i, line := range n.open(t, c).Describe().Attached {
		name := c.Interfaces[i]
		if line != name+": native" && !strings.HasPrefix(line, name+": generic: ") {
			t.Errorf("%s: %q", name, line)
		}
	}
}
