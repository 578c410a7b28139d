package xdp

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Slow path frames, and an independent decoder: the input is made from fast path frames
// with this file's checksums, and the output is verified checksum by checksum.

// is6 reports whether an untagged frame's packet is IPv6.
func is6(frame []byte) bool { return frame[12] == 0x86 }

// header4 fixes length and checksum of the IPv4 header at the front.
func header4(ip []byte) []byte {
	header := int(ip[0]&15) * 4
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], sum16(ip[:header]))
	return ip
}

// withOptions adds options to an IPv4 frame without any.
func withOptions(frame []byte, options ...byte) []byte {
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	out := slices.Concat(frame[:34], options, frame[34:])
	out[14] = 0x45 + byte(len(options)/4)
	header4(out[14:])
	return out
}

// withExtension adds an extension header to an IPv6 frame and sets its first byte.
func withExtension(frame []byte, kind byte, header ...byte) []byte {
	out := slices.Concat(frame[:54], header, frame[54:])
	out[54], out[20] = frame[20], kind
	binary.BigEndian.PutUint16(out[18:], uint16(len(out)-54))
	return out
}

// tagged adds VLAN tags to a frame.
func tagged(frame []byte, tags ...uint16) []byte {
	out := slices.Clone(frame[:12])
	for i, id := range tags {
		proto := uint16(0x8100)
		if len(tags) == 2 && i == 0 {
			proto = 0x88a8
		}
		out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(out, proto), id)
	}
	return append(out, frame[12:]...)
}

// fragments splits a frame into fragments of at most size bytes of payload each, a
// multiple of eight.
func fragments(frame []byte, id uint16, size int) (out [][]byte) {
	header := 34
	if is6(frame) {
		header = 54
	}
	for at := 0; at < len(frame)-header; at += size {
		end := min(at+size, len(frame)-header)
		more := end < len(frame)-header
		f := slices.Concat(frame[:header], frame[header+at:header+end])
		offset := uint16(at)
		if more {
			offset |= 1
		}
		if is6(frame) {
			h := binary.BigEndian.AppendUint16([]byte{0, 0}, offset)
			f = withExtension(f, 44, binary.BigEndian.AppendUint32(h, uint32(id))...)
		} else {
			offset = uint16(at / 8)
			if more {
				offset |= 0x2000
			}
			binary.BigEndian.PutUint16(f[18:], id)
			binary.BigEndian.PutUint16(f[20:], offset)
			header4(f[14:])
		}
		out = append(out, f)
	}
	return out
}

// sumsFit checks every checksum of an IP packet, including one in a tunnel.
func sumsFit(t *testing.T, ip []byte) {
	t.Helper()
	version := gopacket.LayerType(layers.LayerTypeIPv4)
	if ip[0]>>4 == 6 {
		version = layers.LayerTypeIPv6
	}
	p := gopacket.NewPacket(ip, version, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Errorf("no packet: %v\n%s", e.Error(), p)
		return
	}
	var pseudo []byte
	for _, l := range p.Layers() {
		body := slices.Concat(l.LayerContents(), l.LayerPayload())
		switch l := l.(type) {
		case *layers.IPv4:
			if sum16(l.Contents) != 0 {
				t.Errorf("IPv4 header's checksum is wrong\n%s", p)
			}
			if l.Flags&layers.IPv4MoreFragments != 0 || l.FragOffset != 0 {
				return // the inner checksum covers other fragments
			}
			pseudo = slices.Concat(l.SrcIP.To4(), l.DstIP.To4())
		case *layers.IPv6:
			pseudo = slices.Concat(l.SrcIP.To16(), l.DstIP.To16())
		case *layers.IPv6Fragment:
			return
		case *layers.TCP:
			transportFits(t, p, pseudo, 6, body)
		case *layers.UDP:
			if l.Checksum != 0 {
				transportFits(t, p, pseudo, 17, body)
			}
		case *layers.ICMPv4:
			transportFits(t, p, nil, 1, body)
		case *layers.ICMPv6:
			transportFits(t, p, pseudo, 58, body)
		}
	}
}

func transportFits(t *testing.T, p gopacket.Packet, pseudo []byte, proto byte, body []byte) {
	t.Helper()
	if pseudo != nil {
		pseudo = binary.BigEndian.AppendUint32(slices.Clone(pseudo), uint32(len(body)))
		pseudo = append(pseudo, 0, 0, 0, proto)
	}
	if sum16(pseudo, body) != 0 {
		t.Errorf("checksum of protocol %d is wrong\n%s", proto, p)
	}
}

// icmp is an ICMP message in a frame. from and to are the Ethernet addresses as in
// packet.
type icmp struct {
	packet
	kind, code byte
	rest       uint32 // the four bytes after the checksum
	body       []byte
}

func (m icmp) bytes(t testing.TB) []byte {
	t.Helper()
	src, dst := netip.MustParseAddr(m.src), netip.MustParseAddr(m.dst)
	head := binary.BigEndian.AppendUint32([]byte{m.kind, m.code, 0, 0}, m.rest)
	body := append(head, m.body...)
	var pseudo []byte
	proto := byte(1)
	if src.Is6() {
		proto = 58
		pseudo = append(append(pseudo, src.AsSlice()...), dst.AsSlice()...)
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(body)))
		pseudo = append(pseudo, 0, 0, 0, proto)
	}
	binary.BigEndian.PutUint16(body[2:], sum16(pseudo, body))
	ttl := m.ttl
	if ttl == 0 {
		ttl = 64
	}
	eth := append(append([]byte(nil), macEth0...), macGateway...)
	if m.packet.from != nil {
		eth = append(append([]byte(nil), m.packet.to...), m.packet.from...)
	}
	if src.Is6() {
		ip := []byte{0x60 | m.tos>>4, m.tos << 4, 0, 0, 0, 0, proto, ttl}
		binary.BigEndian.PutUint16(ip[4:], uint16(len(body)))
		ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
		return slices.Concat(eth, []byte{0x86, 0xdd}, ip, body)
	}
	ip := []byte{0x45, m.tos, 0, 0, 0, 0, 0, 0, ttl, proto, 0, 0}
	ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
	return slices.Concat(eth, []byte{8, 0}, header4(append(ip, body...)))
}
