package xdp

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestFramesForOtherHosts: a switch floods frames, or a device is promiscuous. A frame
// for another host's MAC address is ignored, whatever its packet is. Frames for devices
// on top of an interface are for this host as soon as those exist, and an interface may
// change its address.
func TestFramesForOtherHosts(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	remembers := frontend(service.FullNAT, "10.1.1.1:81", service.TCP, "172.16.5.1:80")
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, "172.16.5.1:80"))
	upsert(t, d, remembers)
	frames := map[string][]byte{
		"plain":    packet{src: clients[false], dst: vips[false]}.bytes(t),
		"stateful": packet{src: clients[false], dst: "10.1.1.1:81", flags: "S"}.bytes(t),
		"unserved": packet{src: clients[false], dst: "10.1.1.1:99"}.bytes(t),
		"tagged":   tagged(packet{src: clients[false], dst: vips[false]}.bytes(t), 7),
		"fragment": fragments(packet{src: clients[false], dst: vips[false], payload: 300}.bytes(t), 7, 104)[0],
	}
	to := func(mac net.HardwareAddr, frame []byte) []byte { return append(append([]byte{}, mac...), frame[6:]...) }
	other := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	balanced := func(mac net.HardwareAddr) bool { // sent, or rewritten for the kernel to send
		in := to(mac, frames["plain"])
		_, out := n.run(t, d, in)
		return !bytes.Equal(out, in)
	}
	for name, frame := range frames {
		if v, _ := n.run(t, d, frame); v == pass {
			t.Errorf("%s, for us: %v", name, v)
		}
		for _, mac := range []net.HardwareAddr{other, {2, 0, 0, 0, 0, 3}, {3, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0x80, 2}, {0, 0, 0, 0, 0, 0}} {
			if v, out := n.run(t, d, to(mac, frame)); v != pass || !bytes.Equal(out, to(mac, frame)) {
				t.Errorf("%s, for %s: %v", name, mac, v)
			}
		}
	}
	soon := func(what string, cond func() bool) {
		t.Helper()
		testkit.Eventually(t, 5*time.Second, func() error {
			if !cond() {
				return errors.New(what)
			}
			return nil
		})
	}
	above := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "vrrp0", ParentIndex: int(n.eth0), HardwareAddr: other}, Mode: netlink.MACVLAN_MODE_PRIVATE}
	testkit.Do(t, n.balancer, func() error { return netlink.LinkAdd(above) })
	soon("a frame for a macvlan is passed", func() bool { return balanced(other) })
	testkit.Do(t, n.balancer, func() error { return netlink.LinkDel(above) })
	soon("a frame for a macvlan that is gone is balanced", func() bool { return !balanced(other) })
	testkit.Do(t, n.balancer, func() error {
		nic, err := netlink.LinkByName("eth0")
		return errors.Join(err, netlink.LinkSetHardwareAddr(nic, other))
	})
	soon("the interface's former address counts", func() bool { return balanced(other) && !balanced(macEth0) })
}

// TestDevicesOnTop finds the MAC addresses of a host with all kinds of devices.
func TestDevicesOnTop(t *testing.T) {
	mac := func(i byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, i} }
	at := func(i, parent, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: string(rune('a' + i)), Index: i, ParentIndex: parent, MasterIndex: master, HardwareAddr: mac(byte(i))}
	}
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: at(1, 0, 3)}, // members of bond 3, a port of bridge 4
		&netlink.Device{LinkAttrs: at(2, 0, 3)},
		&netlink.Bond{LinkAttrs: at(3, 0, 4)},
		&netlink.Bridge{LinkAttrs: at(4, 0, 0)},
		&netlink.Vlan{LinkAttrs: at(5, 4, 0)},     // on the bridge
		&netlink.Macvlan{LinkAttrs: at(6, 5, 0)},  // on the VLAN
		&netlink.Veth{LinkAttrs: at(7, 8, 4)},     // another port of the bridge: a container
		&netlink.Vxlan{LinkAttrs: at(9, 3, 0)},    // a tunnel's underlay
		&netlink.Device{LinkAttrs: at(10, 0, 11)}, // a port of an Open vSwitch
		&netlink.GenericLink{LinkAttrs: at(11, 0, 0), LinkType: "openvswitch"},
		&netlink.GenericLink{LinkAttrs: at(12, 0, 0), LinkType: "openvswitch"},
	}
	got := map[string]string{}
	for _, l := range receivers(links, []string{"d", "k"}) { // bond 3, port 10
		all := ""
		for _, m := range macsOf(links, l) {
			all += string(rune('a' + m[5]))
		}
		got[l.Attrs().Name] = all
	}
	for name, want := range map[string]string{"b": "bdefg", "c": "cdefg", "d": "defg", "k": "klm"} {
		if got[name] != want {
			t.Errorf("frames at %s may be for %s, want %s", name, got[name], want)
		}
	}
	if len(got) != 4 {
		t.Errorf("frames are expected at %v", got)
	}
}
