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
