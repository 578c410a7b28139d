// Package pktgen creates frames from a description that is convenient on a command line.
// Lengths and checksums are correct.
package pktgen

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Packet describes a packet.
type Packet struct {
	From, To netip.AddrPort
	// Protocol is one of Protocols; with ICMP the ports are not used.
	Protocol string
	// Flags are TCP flags from TCPFlags; none means ACK.
	Flags []string
	// Seq and Ack are TCP's numbers; 0 means 1.
	Seq, Ack uint32
	// Opens makes the SCTP chunk an INIT instead of DATA.
	Opens   bool
	Payload int // bytes
	TTL     int // or hop limit; 0 means 64
	VLAN    int // 0 for no tag
	// Fragment makes it a fragment at byte Offset, with more fragments to follow if More is
	// set. A fragment at offset 0 contains the ports.
	Fragment bool
	Offset   int
	More     bool
	// ICMP is one of ICMPKinds. Errors refer to a packet that the VIP sent: From is the
	// sender of the error, To is the VIP and port, About the client.
	ICMP  string
	About netip.AddrPort
}

// Values of the fields.
var (
	Protocols = []string{"tcp", "udp", "sctp", "icmp"}
	TCPFlags  = []string{"SYN", "ACK", "FIN", "RST", "PSH", "URG"}
	ICMPKinds = []string{"echo", "unreachable", "too-big", "time-exceeded"}
)

// maxPayload keeps the length of an IP packet within 16 bits.
const maxPayload = 65000

// Check returns an error that names the invalid field of p.
func (p Packet) Check() error {
	switch {
	case !p.From.IsValid() || !p.To.IsValid():
		return fmt.Errorf("from, to: give both, as in 192.0.2.7:1234 and 10.1.1.1:80")
	case p.From.Addr().Unmap().Is4() != p.To.Addr().Unmap().Is4():
		return fmt.Errorf("from, to: %s and %s are not of one family", p.From.Addr(), p.To.Addr())
	case !slices.Contains(Protocols, p.Protocol):
		return fmt.Errorf("protocol: %q is none of %s", p.Protocol, strings.Join(Protocols, ", "))
	case p.Payload < 0 || p.Payload > maxPayload:
		return fmt.Errorf("payload: %d is not between 0 and %d", p.Payload, maxPayload)
	case p.TTL < 0 || p.TTL > 255:
		return fmt.Errorf("ttl: %d is not between 0 and 255", p.TTL)
	case p.VLAN < 0 || p.VLAN > 4094:
		return fmt.Errorf("vlan: %d is not between 1 and 4094", p.VLAN)
	case p.Offset < 0 || p.Offset%8 != 0 || p.Offset > 65528:
		return fmt.Errorf("fragment: %d is no multiple of 8 up to 65528", p.Offset)
	case p.ICMP != "" && !slices.Contains(ICMPKinds, p.ICMP):
		return fmt.Errorf("icmp: %q is none of %s", p.ICMP, strings.Join(ICMPKinds, ", "))
	}
	for _, f := range p.Flags {
		if !slices.Contains(TCPFlags, strings.ToUpper(f)) {
			return fmt.Errorf("flags: %q is none of %s", f, strings.Join(TCPFlags, ", "))
		}
	}
	if len(p.Flags) > 0 && p.Protocol != "tcp" {
		return fmt.Errorf("flags: %s has none", p.Protocol)
	}
	return nil
}

// frameFrom is the sender's MAC address, a locally administered one.
var frameFrom = net.HardwareAddr{2, 0, 0, 0, 0, 1}

// Frame returns the frame. Its destination MAC address is zero.
func (p Packet) Frame() ([]byte, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	p.From = netip.AddrPortFrom(p.From.Addr().Unmap(), p.From.Port())
	p.To = netip.AddrPortFrom(p.To.Addr().Unmap(), p.To.Port())
	l3, err := p.ip()
	if err != nil {
		return nil, err
	}
	frame := append(make([]byte, 6), frameFrom...)
	if p.VLAN != 0 {
		frame = binary.BigEndian.AppendUint16(frame, uint16(layers.EthernetTypeDot1Q))
		frame = binary.BigEndian.AppendUint16(frame, uint16(p.VLAN))
	}
	kind := layers.EthernetTypeIPv4
	if p.v6() {
		kind = layers.EthernetTypeIPv6
	}
	return append(binary.BigEndian.AppendUint16(frame, uint16(kind)), l3...), nil
}

func (p Packet) v6() bool { return p.To.Addr().Is6() }

// ident is the IP identification of every packet and fragment.
const ident = 0x4642

// ip returns the IP packet.
func (p Packet) ip() ([]byte, error) {
	ttl := p.TTL
	if ttl == 0 {
		ttl = 64
	}
	body, proto, err := p.body()
	if err != nil {
		return nil, err
	}
	if p.v6() {
		ip := p.ipv6(proto, uint8(ttl))
		if p.Fragment {
			ip.NextHeader = layers.IPProtocolIPv6Fragment
			body = append(p.fragmentHeader(proto), body...)
		}
		return serialize(ip, body)
	}
	ip := p.ipv4(proto, uint8(ttl))
	if p.Fragment {
		ip.Flags, ip.FragOffset = 0, uint16(p.Offset/8)
		if p.More {
			ip.Flags = layers.IPv4MoreFragments
		}
	}
	return serialize(ip, body)
}

func (p Packet) ipv4(proto layers.IPProtocol, ttl uint8) *layers.IPv4 {
	return &layers.IPv4{
		Version: 4, Id: ident, Flags: layers.IPv4DontFragment, TTL: ttl, Protocol: proto,
		SrcIP: p.From.Addr().AsSlice(), DstIP: p.To.Addr().AsSlice(),
	}
}

func (p Packet) ipv6(proto layers.IPProtocol, ttl uint8) *layers.IPv6 {
	return &layers.IPv6{
		Version: 6, NextHeader: proto, HopLimit: ttl, SrcIP: p.From.Addr().AsSlice(), DstIP: p.To.Addr().AsSlice(),
	}
}

// fragmentHeader returns an IPv6 fragment header (RFC 8200, 4.5).
func (p Packet) fragmentHeader(next layers.IPProtocol) []byte {
	at := uint16(p.Offset)
	if p.More {
		at |= 1
	}
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16([]byte{byte(next), 0}, at), ident)
}

// body returns what follows the IP header, and its protocol number.
func (p Packet) body() ([]byte, layers.IPProtocol, error) {
	payload := make([]byte, p.Payload)
	for i := range payload {
		payload[i] = byte('a' + i%26)
	}
	proto := map[string]layers.IPProtocol{
		"tcp": layers.IPProtocolTCP, "udp": layers.IPProtocolUDP, "sctp": layers.IPProtocolSCTP, "icmp": layers.IPProtocolICMPv4,
	}[p.Protocol]
	if p.Protocol == "icmp" && p.v6() {
		proto = layers.IPProtocolICMPv6
	}
	if p.Fragment && p.Offset > 0 {
		return payload, proto, nil
	}
	var l gopacket.SerializableLayer
	switch p.Protocol {
	case "tcp":
		l = p.tcp()
	case "udp":
		l = &layers.UDP{SrcPort: layers.UDPPort(p.From.Port()), DstPort: layers.UDPPort(p.To.Port())}
	case "sctp":
		return p.sctp(payload), proto, nil
	default:
		b, err := p.icmp(payload)
		return b, proto, err
	}
	if err := p.pseudoHeader(l, proto); err != nil {
		return nil, proto, err
	}
	b, err := serialize(l, payload)
	return b, proto, err
}

// pseudoHeader sets the IP addresses for a layer's checksum.
func (p Packet) pseudoHeader(l any, proto layers.IPProtocol) error {
	var ip gopacket.NetworkLayer = p.ipv4(proto, 1)
	if p.v6() {
		ip = p.ipv6(proto, 1)
	}
	return l.(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}).SetNetworkLayerForChecksum(ip)
}

func (p Packet) tcp() *layers.TCP {
	has := func(flag string) bool {
		return slices.ContainsFunc(p.Flags, func(f string) bool { return strings.EqualFold(f, flag) })
	}
	return &layers.TCP{
		SrcPort: layers.TCPPort(p.From.Port()), DstPort: layers.TCPPort(p.To.Port()), Seq: cmp.Or(p.Seq, 1), Ack: cmp.Or(p.Ack, 1), Window: 65535,
		SYN: has("SYN"), ACK: has("ACK") || len(p.Flags) == 0, FIN: has("FIN"), RST: has("RST"), PSH: has("PSH"), URG: has("URG"),
	}
}

// sctp returns a packet with one chunk (RFC 9260, 3): INIT with its 16 fixed bytes and the
// payload as padding (RFC 4820, 4), whose header is the payload's first 4 bytes; or DATA
// with its 12 bytes and the payload.
func (p Packet) sctp(payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, p.From.Port())
	b = binary.BigEndian.AppendUint16(b, p.To.Port())
	chunk, body := byte(0), append(make([]byte, 12), payload...)
	tag := uint32(1)
	if p.Opens {
		chunk, body, tag = 1, append(make([]byte, 16), payload...), 0
		if len(payload) >= 4 {
			binary.BigEndian.PutUint16(body[16:], 0x8005)
			binary.BigEndian.PutUint16(body[18:], uint16(len(payload)))
		} else {
			body = body[:16]
		}
	}
	b = binary.BigEndian.AppendUint32(b, tag)
	b = append(b, 0, 0, 0, 0, chunk, 3)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(body)))
	b = append(b, body...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// icmp returns an echo request, or an error about a packet from To to About.
func (p Packet) icmp(payload []byte) ([]byte, error) {
	if p.ICMP == "" || p.ICMP == "echo" {
		head := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, p.From.Port()), 1)
		return p.icmpMessage(8, 128, 0, 0, append(head, payload...))
	}
	about := p.About
	if !about.IsValid() {
		about = p.From
	}
	inner := Packet{From: p.To, To: about, Protocol: "tcp", Payload: p.Payload, TTL: 60}
	embedded, err := inner.ip()
	if err != nil {
		return nil, err
	}
	const mtu = 1400
	rest := make([]byte, 4)
	switch p.ICMP {
	case "too-big":
		binary.BigEndian.PutUint32(rest, mtu)
		if p.v6() {
			return p.icmpMessage(0, 2, 0, 0, append(rest, embedded...))
		}
		return p.icmpMessage(3, 0, 4, 0, append(rest, embedded...))
	case "time-exceeded":
		return p.icmpMessage(11, 3, 0, 0, append(rest, embedded...))
	}
	return p.icmpMessage(3, 1, 1, 0, append(rest, embedded...)) // host unreachable; address unreachable
}

// icmpMessage returns a message of the packet's family, with that family's type and code.
func (p Packet) icmpMessage(type4, type6, code4, code6 uint8, body []byte) ([]byte, error) {
	if !p.v6() {
		return serialize(&layers.ICMPv4{
			TypeCode: layers.CreateICMPv4TypeCode(type4, code4),
			Id:       binary.BigEndian.Uint16(body), Seq: binary.BigEndian.Uint16(body[2:]),
		}, body[4:])
	}
	l := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(type6, code6)}
	if err := p.pseudoHeader(l, layers.IPProtocolICMPv6); err != nil {
		return nil, err
	}
	return serialize(l, body)
}

func serialize(l gopacket.SerializableLayer, payload []byte) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l, gopacket.Payload(payload))
	return slices.Clone(buf.Bytes()), err
}
