package networks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit"
)

// headerOf returns the length of an IP header.
func headerOf(v6 bool) int {
	if v6 {
		return 40
	}
	return 20
}

// macOf returns the MAC address of a host's device.
func (w *world) macOf(h *lab.Host, device string) wire.MAC {
	w.t.Helper()
	link, err := h.Netlink().LinkByName(device)
	if err != nil {
		w.t.Fatal(err)
	}
	return wire.MAC(link.Attrs().HardwareAddr)
}

// podMAC returns a pod's MAC address.
func (w *world) podMAC(pod string) wire.MAC {
	return w.macOf(w.Host(pod), w.Pods[pod].Att.Interface)
}

// frame builds a frame from one MAC address to another.
func (w *world) frame(to, from wire.MAC, p pktgen.Packet) []byte {
	w.t.Helper()
	b, err := p.Frame()
	if err != nil {
		w.t.Fatal(err)
	}
	copy(b, to[:])
	copy(b[6:], from[:])
	return b
}

// sendFrame sends a frame through a host's device.
func (w *world) sendFrame(h *lab.Host, device string, priority int, frame []byte) {
	w.t.Helper()
	testkit.Do(w.t, h.Namespace(), func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, priority); err != nil {
			return err
		}
		err = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index, Halen: 6})
		if errors.Is(err, unix.ENOBUFS) {
			err = nil // this is how a packet socket reports a drop
		}
		return err
	})
}

// sniffer is a socket that receives packets on a host.
type sniffer struct {
	fd     int
	frames [][]byte
}

// packets returns a sniffer for all frames that arrive at a device, including those that are
// dropped later.
func (w *world) packets(h *lab.Host, device string) *sniffer {
	all := netorder.Port(unix.ETH_P_ALL)
	e := newSniffer(w.t, h, unix.AF_PACKET, int(all))
	testkit.Do(w.t, h.Namespace(), func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptInt(e.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.Bind(e.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}))
	})
	return e
}

// newSniffer returns a sniffer with a raw socket on a host.
func newSniffer(t *testing.T, h *lab.Host, family, protocol int) *sniffer {
	t.Helper()
	e := &sniffer{}
	testkit.Do(t, h.Namespace(), func() (err error) {
		e.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	t.Cleanup(func() { unix.Close(e.fd) })
	return e
}

// received reports whether a packet that contains mark has arrived.
func (e *sniffer) received(mark []byte) bool {
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(e.fd, buf, 0)
		if err != nil {
			break
		}
		e.frames = append(e.frames, slices.Clone(buf[:n]))
	}
	return slices.ContainsFunc(e.frames, func(b []byte) bool { return bytes.Contains(b, mark) })
}

// icmp returns an IP packet with an ICMP message: type, code and what follows the
// checksum.
func icmp(from, to netip.Addr, kind, code, hops byte, body []byte) []byte {
	var l []gopacket.SerializableLayer
	if to.Is4() {
		l = append(l, &layers.IPv4{Version: 4, TTL: hops, Protocol: layers.IPProtocolICMPv4, SrcIP: from.AsSlice(), DstIP: to.AsSlice()},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, code)}, gopacket.Payload(body[4:]))
	} else {
		outer := &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		message := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, code)}
		_ = message.SetNetworkLayerForChecksum(outer) // the layer is always valid
		l = append(l, outer, message, gopacket.Payload(body))
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		panic(err) // cannot fail for any input
	}
	return slices.Clone(buf.Bytes())
}

// ethernet adds an Ethernet header to a packet.
func ethernet(to, from wire.MAC, packet []byte) []byte {
	kind := []byte{8, 0}
	if packet[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return slices.Concat(to[:], from[:], kind, packet)
}

// sumHeader sets the checksum of an IPv4 header without options (RFC 791), because a
// bridge may verify it.
func sumHeader(b []byte) {
	b[10], b[11] = 0, 0
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum>>16+sum))
}
