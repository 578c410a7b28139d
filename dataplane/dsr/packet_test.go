package dsr

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/lab/testkit/authtag"
)

// wire is a packet of these tests: what a test must specify, and defaults for the rest.
type wire struct {
	client, dst netip.AddrPort
	udp         bool
	flags       string // of TCP: letters of SAFR, "A" if empty
	seq, ack    uint32 // of TCP: tcpSequence and 0 if 0
	mss         uint16 // an option of a SYN
	ttl         uint8  // 63 if 0
	tos         uint8
	payload     string
	noSum       bool // UDP without a checksum
	option      list // the Fairlead option, of the only header or the inner
	fragment    bool // the first of several
	later       bool // a later one of several

	tunnel       netip.Addr // the outer destination
	tunnelFrom   netip.Addr // the outer source: balancer4 or balancer6 if none
	tunnelOption list
	gue          bool  // over UDP
	gueSum       bool  // with a checksum
	tunnelTTL    uint8 // 64 if 0
	tunnelTOS    uint8

	key nodekey.Key // makes the tag at the end of the first header's list; none if zero
}

// tag is that of the first header's list, none without a key.
func (w wire) tag(place authtag.Place, src, dst netip.Addr, l list) []byte {
	if w.key == (nodekey.Key{}) {
		return nil
	}
	p := authtag.Packet{Place: place, Src: src, Dst: dst, From: w.client, To: w.dst, Protocol: 6, List: l}
	if w.udp {
		p.Protocol = 17
	}
	if w.fragment || w.later || len(w.option) > 0 && place != authtag.Own {
		p.From, p.To, p.Protocol = netip.AddrPortFrom(w.client.Addr(), 0), netip.AddrPortFrom(w.dst.Addr(), 0), 0
	}
	return p.Tag(w.key)
}

// list is the option's content.
type list []netip.AddrPort

var (
	macs        = [2]net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	balancer4   = netip.MustParseAddr("172.16.9.9")
	balancer6   = netip.MustParseAddr("2001:db8:16:9::9")
	tcpSequence = uint32(1000)
)

// bytes builds the frame, with all checksums correct.
func (w wire) bytes(t testing.TB) []byte {
	t.Helper()
	ip, proto := w.ip(t)
	if w.tunnel.IsValid() {
		ip, proto = w.outer(ip, proto)
	}
	return append(ethernet(proto), ip...)
}

func ethernet(proto uint16) []byte {
	b := append(append([]byte{}, macs[1]...), macs[0]...)
	return binary.BigEndian.AppendUint16(b, proto)
}

func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ls...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// ip builds the (inner) IP packet. The second result is its Ethernet type.
func (w wire) ip(t testing.TB) ([]byte, uint16) {
	t.Helper()
	l4 := w.l4(t)
	proto := byte(6)
	if w.udp {
		proto = 17
	}
	head := ipHead{src: w.client.Addr(), dst: w.dst.Addr(), ttl: w.ttl, tos: w.tos, proto: proto, option: w.option, fragment: w.fragment, later: w.later}
	if head.ttl == 0 {
		head.ttl = 63
	}
	if !w.tunnel.IsValid() {
		head.tag = w.tag(authtag.Own, netip.Addr{}, netip.Addr{}, w.option)
	}
	return head.before(l4)
}

// l4 builds the TCP segment or UDP datagram.
func (w wire) l4(t testing.TB) []byte {
	t.Helper()
	var network gopacket.NetworkLayer = &layers.IPv4{SrcIP: w.client.Addr().AsSlice(), DstIP: w.dst.Addr().AsSlice(), Protocol: layers.IPProtocolTCP}
	if w.udp {
		network.(*layers.IPv4).Protocol = layers.IPProtocolUDP
	}
	if w.client.Addr().Is6() {
		network = &layers.IPv6{SrcIP: w.client.Addr().AsSlice(), DstIP: w.dst.Addr().AsSlice(), NextHeader: network.(*layers.IPv4).Protocol}
	}
	if w.udp {
		udp := &layers.UDP{SrcPort: layers.UDPPort(w.client.Port()), DstPort: layers.UDPPort(w.dst.Port())}
		udp.SetNetworkLayerForChecksum(network)
		b := serialize(t, udp, gopacket.Payload(w.payload))
		if w.noSum {
			b[6], b[7] = 0, 0
		}
		return b
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(w.client.Port()), DstPort: layers.TCPPort(w.dst.Port()), Seq: cmp.Or(w.seq, tcpSequence), Ack: w.ack, Window: 502}
	for _, f := range w.flags {
		switch f {
		case 'S':
			tcp.SYN = true
		case 'A':
			tcp.ACK = true
		case 'F':
			tcp.FIN = true
		case 'R':
			tcp.RST = true
		}
	}
	tcp.ACK = tcp.ACK || w.flags == ""
	if w.mss > 0 {
		tcp.Options = []layers.TCPOption{
			{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: binary.BigEndian.AppendUint16(nil, w.mss)},
			{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
		}
	}
	tcp.SetNetworkLayerForChecksum(network)
	return serialize(t, tcp, gopacket.Payload(w.payload))
}

func (w wire) outer(inner []byte, ethertype uint16) ([]byte, uint16) {
	head := ipHead{src: balancer4, dst: w.tunnel, ttl: w.tunnelTTL, tos: w.tunnelTOS, proto: 4, option: w.tunnelOption}
	if head.ttl == 0 {
		head.ttl = 64
	}
	if w.tunnel.Is6() {
		head.src = balancer6
	}
	if w.tunnelFrom.IsValid() {
		head.src = w.tunnelFrom
	}
	if ethertype == 0x86dd {
		head.proto = 41
	}
	place := authtag.Outer
	if w.gue {
		place = authtag.GUE
	}
	head.tag = w.tag(place, head.src, head.dst, w.tunnelOption)
	if w.gue {
		inner = w.inGUE(head, inner)
		head.proto, head.option, head.tag = 17, nil, nil
	}
	return head.before(inner)
}

// inGUE puts UDP and GUE before a packet. The list is private data.
func (w wire) inGUE(head ipHead, inner []byte) []byte {
	var private []byte
	if len(head.option) > 0 || head.tag != nil {
		private = append([]byte{0x9e, byte(len(head.option)), byte(len(head.tag) / 4), 0}, head.option.bytes()...)
		private = append(private, head.tag...)
		for len(private)%4 != 0 {
			private = append(private, 0)
		}
	}
	b := binary.BigEndian.AppendUint16([]byte{0xc0, 0x01}, 6080)
	b = binary.BigEndian.AppendUint16(b, uint16(8+4+len(private)+len(inner)))
	b = append(b, 0, 0, byte(len(private)/4), head.proto, 0, 0)
	b = append(append(b, private...), inner...)
	if w.gueSum {
		binary.BigEndian.PutUint16(b[6:], checksum(head.src, head.dst, 17, b))
	}
	return b
}

// bytes are the list's endpoints.
func (l list) bytes() []byte {
	var b []byte
	for _, e := range l {
		b = binary.BigEndian.AppendUint16(append(b, e.Addr().AsSlice()...), e.Port())
	}
	return b
}

// ipHead is an IP header with or without the Fairlead option, written by hand: the bytes
// are the contract between load balancer and DSR agent.
type ipHead struct {
	src, dst netip.Addr
	ttl, tos uint8
	proto    byte
	option   list
	tag      []byte // after the option's list
	fragment bool   // the first
	later    bool   // a later one
	others   []byte // options or extension headers after ours; whole words
}

func (h ipHead) before(payload []byte) ([]byte, uint16) {
	if h.dst.Is6() {
		return h.before6(payload), 0x86dd
	}
	return h.before4(payload), 0x0800
}

func (h ipHead) before4(payload []byte) []byte {
	b := make([]byte, 20)
	if len(h.option) > 0 || h.tag != nil {
		endpoints := append(h.option.bytes(), h.tag...)
		b = append(append(b, 0x9e, byte(2+len(endpoints))), endpoints...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	b = append(b, h.others...)
	b[0] = 0x40 | byte(len(b)/4)
	b[1] = h.tos
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(payload)))
	binary.BigEndian.PutUint16(b[4:], 0x1234)
	b[6] = 0x40
	if h.fragment {
		b[6] = 0x20
	}
	if h.later {
		b[6], b[7] = 0, 20
	}
	b[8], b[9] = h.ttl, h.proto
	copy(b[12:], h.src.AsSlice())
	copy(b[16:], h.dst.AsSlice())
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum))
	return append(b, payload...)
}

func (h ipHead) before6(payload []byte) []byte {
	b := make([]byte, 40)
	b[6] = h.proto
	listed := len(h.option) > 0 || h.tag != nil
	if listed {
		endpoints := append(h.option.bytes(), h.tag...)
		b[6] = 60
		size := (4 + len(endpoints) + 7) / 8 * 8
		b = append(append(b, h.proto, byte(size/8-1), 0x1e, byte(len(endpoints))), endpoints...)
		if pad := size - 4 - len(endpoints); pad > 0 {
			b = append(append(b, 1, byte(pad-2)), make([]byte, pad-2)...)
		}
	}
	last := &b[6]
	if listed {
		last = &b[40]
	}
	if h.others != nil { // each a header of eight bytes with a next header field
		h.others[0], *last = *last, 60
		b = append(b, h.others...)
		last = &b[len(b)-len(h.others)]
	}
	if h.fragment || h.later {
		next := *last
		*last = 44
		offset := byte(1)
		if h.later {
			offset = 160
		}
		b = append(b, next, 0, 0, offset, 0, 0, 0, 9)
	}
	b[0], b[1] = 0x60|h.tos>>4, h.tos<<4
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40+len(payload)))
	b[7] = h.ttl
	copy(b[8:], h.src.AsSlice())
	copy(b[24:], h.dst.AsSlice())
	return append(b, payload...)
}

// wantFrame compares byte for byte and reports the difference layer by layer.
func wantFrame(t *testing.T, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	t.Errorf("frame differs (-want +got):\n%s", gocmp.Diff(decode(want), decode(got)))
}

func decode(frame []byte) string {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	return fmt.Sprintf("%s\n%s", p.String(), p.Dump())
}
