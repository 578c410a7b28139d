package device

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

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
