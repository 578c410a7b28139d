package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/ethtool"
	"github.com/fairlead/fairlead/lab/testkit"
)

// rxVLAN is ETH_FLAG_RXVLAN of linux/ethtool.h.
const rxVLAN = 1 << 8

// tagsShown reports whether an interface leaves VLAN tags in the frame.
func (n *testNet) tagsShown(t *testing.T, nic string) (shown bool) {
	t.Helper()
	testkit.Do(t, n.balancer, func() error {
		value, err := ethtool.CallValue(nic, unix.ETHTOOL_GFLAGS, 0)
		shown = value&rxVLAN == 0
		return err
	})
	return shown
}

// Interfaces show tags while they are ours, across agent restarts, and are restored
// afterwards.
func TestVLANOffload(t *testing.T) {
	n := newNet(t)
	c := config()
	c.Interfaces = []string{"eth0", "eth1"}
	testkit.Do(t, n.balancer, func() error { // eth1's was off
		value, err := ethtool.CallValue("eth1", unix.ETHTOOL_GFLAGS, 0)
		must(t, err)
		setOffload(t, "eth1", unix.ETHTOOL_SFLAGS, value&^rxVLAN)
		return nil
	})
	if n.tagsShown(t, "eth0") {
		t.Fatal("nothing to turn off")
	}
	d := n.open(t, c)
	for range 2 {
		if !n.tagsShown(t, "eth0") || !n.tagsShown(t, "eth1") {
			t.Fatal("tags are hidden from the program")
		}
		must(t, d.Close())
		d = n.open(t, c)
	}
	must(t, d.Close())
	c.Interfaces = []string{"eth1"}
	d = n.open(t, c)
	if n.tagsShown(t, "eth0") {
		t.Error("eth0 was left, and is not what it was")
	}
	testkit.Do(t, n.balancer, d.Detach)
	n.current = nil
	if !n.tagsShown(t, "eth1") {
		t.Error("eth1's was off, and is on now")
	}
}

// receiveTagged waits for a frame in a VLAN, which the kernel delivers without its tag,
// and returns both.
func (w *wireEnd) receiveTagged(t *testing.T, wanted func(frame []byte) bool) (frame []byte, tci uint16) {
	t.Helper()
	buf, oob := make([]byte, 2048), make([]byte, 256)
	for {
		n, oobn, _, _, err := unix.Recvmsg(w.fd, buf, oob, 0)
		if err != nil {
			t.Fatalf("nothing came back: %v", err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		must(t, err)
		for _, m := range messages {
			// struct tpacket_auxdata (linux/if_packet.h)
			status, tag := binary.NativeEndian.Uint32(m.Data), binary.NativeEndian.Uint16(m.Data[16:])
			if m.Header.Type == unix.PACKET_AUXDATA && status&unix.TP_STATUS_VLAN_VALID != 0 && wanted(buf[:n]) {
				return bytes.Clone(buf[:n]), tag
			}
		}
	}
}

func (n *testNet) taggedEnd(t *testing.T) *wireEnd {
	t.Helper()
	w := n.wireEnd(t)
	must(t, unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
	return w
}

// exchangeTagged is exchange within a VLAN.
func (w *wireEnd) exchangeTagged(t *testing.T, vlan uint16, in, out []byte) {
	t.Helper()
	_, err := unix.Write(w.fd, tagged(in, vlan))
	must(t, err)
	if _, tci := w.receiveTagged(t, func(f []byte) bool { return bytes.Equal(f, out) }); tci != vlan {
		t.Errorf("in VLAN %d, and back in %d", vlan, tci)
	}
}

// Tagged frames on the wire.
func TestVLANLive(t *testing.T) {
	for _, mode := range []Mode{Native, Generic} {
		t.Run(string(mode), func(t *testing.T) { vlanLive(t, mode) })
	}
}

func vlanLive(t *testing.T, mode Mode) {
	n := newNet(t)
	c := config()
	c.Mode = mode
	d := n.open(t, c)
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
	in, out := tunnelled(t)
	w := n.taggedEnd(t)
	w.exchangeTagged(t, 7, in, out)
}

// A client behind a real VLAN device, whose kernel writes tags into frames like a remote
// one.
func TestVLANDevice(t *testing.T) {
	n := newNet(t)
	testkit.Do(t, n.outside, func() error {
		parent, err := netlink.LinkByName("net0")
		must(t, err)
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = "net0.9", parent.Attrs().Index
		if err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: 9}); errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("this kernel has no VLAN devices")
		} else if err != nil {
			return err
		}
		const txVLAN = 1 << 7 // ETH_FLAG_TXVLAN
		flags, err := ethtool.CallValue("net0", unix.ETHTOOL_GFLAGS, 0)
		must(t, err)
		setOffload(t, "net0", unix.ETHTOOL_SFLAGS, flags&^txVLAN)
		nic, err := netlink.LinkByName("net0.9")
		must(t, err)
		addr, err := netlink.ParseAddr("192.168.0.2/24")
		must(t, err)
		must(t, netlink.AddrAdd(nic, addr))
		must(t, netlink.LinkSetUp(nic))
		neighbor(t, uint32(nic.Attrs().Index), "192.168.0.1", macEth0)
		route(t, netlink.Route{LinkIndex: nic.Attrs().Index, Gw: net.ParseIP("192.168.0.1")})
		return nil
	})
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, vips[false], service.UDP, servers[false]))
	w := n.taggedEnd(t)
	testkit.Do(t, n.outside, func() error {
		conn, err := net.Dial("udp", vips[false])
		must(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("in VLAN 9"))
		return err
	})
	server := netip.MustParseAddrPort(servers[false]).Addr().AsSlice()
	got, tci := w.receiveTagged(t, func(f []byte) bool { return len(f) > 34 && f[23] == 4 && bytes.Equal(f[30:34], server) })
	if tci != 9 || !bytes.HasSuffix(got, []byte("in VLAN 9")) {
		t.Errorf("in VLAN %d: %x", tci, got)
	}
}
