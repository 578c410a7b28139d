package xdp

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// packet describes a frame. bytes encodes it with another library's encoders and
// checksums, so that the program's output can be compared with the expected one byte for
// byte.
type packet struct {
	from, to net.HardwareAddr // Ethernet; nil for gateway to eth0
	src, dst string           // address:port
	udp      bool
	sctp     bool   // an INIT for the flag S, an ABORT for R, else a HEARTBEAT
	flags    string // TCP: of S A F R P; none is A
	seq, ack uint32 // TCP; 0 are 7 and 9. SCTP: seq is the verification tag
	ttl      uint8  // 0 is 64
	tos      uint8
	payload  int    // bytes
	noCheck  bool   // UDP: checksum zero
	option   string // address:port, several separated by spaces
	outer    *outer
}

// outer is a tunnel's header.
type outer struct {
	src, dst string
	ttl      uint8
	option   string
	label    uint32
}

var serialize = gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}

func (p packet) bytes(t testing.TB) []byte {
	t.Helper()
	src, dst := netip.MustParseAddrPort(p.src), netip.MustParseAddrPort(p.dst)
	inner := p.ip(t, src, dst)
	v6 := src.Addr().Is6()
	if p.outer != nil {
		inner = p.outer.wrap(t, inner, v6, p.tos)
		v6 = netip.MustParseAddr(p.outer.src).Is6()
	}
	// By hand: the library would pad to 60 bytes.
	eth := append(append([]byte(nil), macEth0...), macGateway...)
	if p.from != nil {
		eth = append(append([]byte(nil), p.to...), p.from...)
	}
	ethertype := layers.EthernetTypeIPv4
	if v6 {
		ethertype = layers.EthernetTypeIPv6
	}
	return append(binary.BigEndian.AppendUint16(eth, uint16(ethertype)), inner...)
}

// ip returns the IP packet.
func (p packet) ip(t testing.TB, src, dst netip.AddrPort) []byte {
	ttl := p.ttl
	if ttl == 0 {
		ttl = 64
	}
	proto := layers.IPProtocolTCP
	if p.udp {
		proto = layers.IPProtocolUDP
	} else if p.sctp {
		proto = layers.IPProtocolSCTP
	}
	if src.Addr().Is6() {
		ip := &layers.IPv6{
			Version: 6, TrafficClass: p.tos, FlowLabel: 0xabcde, NextHeader: proto, HopLimit: ttl,
			SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice(),
		}
		body := p.transport(t, ip, src.Port(), dst.Port())
		if p.option != "" {
			body = append(option6(p.option, proto), body...)
			ip.NextHeader = layers.IPProtocolIPv6Destination
		}
		return encode(t, ip, gopacket.Payload(body))
	}
	ip := &layers.IPv4{
		Version: 4, TOS: p.tos, Id: 0x1234, Flags: layers.IPv4DontFragment, TTL: ttl, Protocol: proto,
		SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice(), Options: option4(p.option),
	}
	return encode(t, ip, gopacket.Payload(p.transport(t, ip, src.Port(), dst.Port())))
}

func (p packet) transport(t testing.TB, ip gopacket.NetworkLayer, sport, dport uint16) []byte {
	payload := make([]byte, p.payload)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	if p.udp {
		udp := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
		must(t, udp.SetNetworkLayerForChecksum(ip))
		b := encode(t, udp, gopacket.Payload(payload))
		if p.noCheck {
			b[6], b[7] = 0, 0
		}
		return b
	}
	if p.sctp {
		return p.chunk(payload, sport, dport)
	}
	has := func(flag string) bool { return strings.Contains(p.flags, flag) }
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(sport), DstPort: layers.TCPPort(dport), Seq: cmp.Or(p.seq, 7), Ack: cmp.Or(p.ack, 9), Window: 1000,
		SYN: has("S"), ACK: has("A") || p.flags == "", FIN: has("F"), RST: has("R"), PSH: has("P"),
	}
	must(t, tcp.SetNetworkLayerForChecksum(ip))
	return encode(t, tcp, gopacket.Payload(payload))
}

// chunk is an SCTP packet with one chunk, at least as long as an INIT's (RFC 9260,
// 3.3.2). The CRC32c is in its own byte order (appendix A).
func (p packet) chunk(payload []byte, sport, dport uint16) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, sport), dport)
	b = append(binary.BigEndian.AppendUint32(b, p.seq), 0, 0, 0, 0) // tag and checksum
	kind := byte(4)
	switch {
	case strings.Contains(p.flags, "S"):
		kind = 1
	case strings.Contains(p.flags, "R"):
		kind = 6
	}
	b = binary.BigEndian.AppendUint16(append(b, kind, 0), uint16(20+len(payload)))
	b = append(append(b, make([]byte, 16)...), payload...)
	b = append(b, make([]byte, -len(payload)&3)...)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// wrap puts the outer header before a packet.
func (o *outer) wrap(t testing.TB, inner []byte, inner6 bool, tos uint8) []byte {
	src, dst := netip.MustParseAddr(o.src), netip.MustParseAddr(o.dst)
	proto := layers.IPProtocolIPv4
	if inner6 {
		proto = layers.IPProtocolIPv6
	}
	if src.Is4() {
		return encode(t, &layers.IPv4{
			Version: 4, TOS: tos, Flags: layers.IPv4DontFragment, TTL: o.ttl, Protocol: proto,
			SrcIP: src.AsSlice(), DstIP: dst.AsSlice(), Options: option4(o.option),
		}, gopacket.Payload(inner))
	}
	ip := &layers.IPv6{
		Version: 6, TrafficClass: tos, FlowLabel: o.label, NextHeader: proto, HopLimit: o.ttl,
		SrcIP: src.AsSlice(), DstIP: dst.AsSlice(),
	}
	if o.option != "" {
		inner = append(option6(o.option, proto), inner...)
		ip.NextHeader = layers.IPProtocolIPv6Destination
	}
	return encode(t, ip, gopacket.Payload(inner))
}

// option4 is the Fairlead option of IPv4, written independently of the program's header.
func option4(endpoints string) []layers.IPv4Option {
	data := optionData(endpoints)
	if len(data) == 0 {
		return nil
	}
	return []layers.IPv4Option{{OptionType: 0x9e, OptionLength: uint8(2 + len(data)), OptionData: data}}
}

func option6(endpoints string, next layers.IPProtocol) []byte {
	data := optionData(endpoints)
	b := append([]byte{byte(next), 0, 0x1e, uint8(len(data))}, data...)
	if short := 7 - (len(b)+7)%8; short > 0 {
		b = append(b, 1, uint8(short-2)) // PadN
		b = append(b, make([]byte, short-2)...)
	}
	b[1] = uint8(len(b)/8 - 1)
	return b
}

func optionData(endpoints string) (data []byte) {
	for _, text := range strings.Fields(endpoints) {
		e := netip.MustParseAddrPort(text)
		data = append(data, e.Addr().AsSlice()...)
		data = binary.BigEndian.AppendUint16(data, e.Port())
	}
	return data
}

func encode(t testing.TB, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(buf, serialize, all...))
	return append([]byte(nil), buf.Bytes()...)
}
