package wire

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
)

// Frame describes a frame. The zero value of a field is the simplest one.
type Frame struct {
	To, From [6]byte
	VLANs    []uint16 // tags, the outermost first
	VLANType uint16   // of the outermost tag, if it is not 0x8100

	Src, Dst Addr
	V6       bool // even if the addresses are IPv4
	TTL, TOS byte
	ID       uint32
	Label    uint32
	DF       bool
	Options  []byte // IPv4: padded here
	// Extensions follow an IPv6 header, each with its number.
	Extensions []Extension
	Offset     int  // of a fragment, in bytes
	More       bool // fragments
	Fragmented bool // IPv6: a fragment header, even if it is an atomic fragment

	Proto        byte
	SPort, DPort uint16
	Flags        byte   // TCP's 13th byte, or SCTP's chunk type
	Seq, Ack     uint32 // for TCP; for SCTP the first is the verification tag
	TCPOptions   []byte
	Window       uint16 // 0: 8192
	NoCheck      bool   // UDP
	// Payload is what the transport carries, or for other protocols everything after the
	// IP headers. A later fragment consists of the payload only.
	Payload []byte
}

// Extension is an IPv6 extension header, without its first byte.
type Extension struct {
	Header byte
	Rest   []byte // its length is a multiple of 8, less 1
}

// Append writes the frame.
func (f *Frame) Append(b []byte) []byte {
	b = append(append(b, f.To[:]...), f.From[:]...)
	kind := uint16(0x8100)
	if f.VLANType != 0 {
		kind = f.VLANType
	}
	for _, tag := range f.VLANs {
		b = binary.BigEndian.AppendUint16(b, kind)
		b = binary.BigEndian.AppendUint16(b, tag)
		kind = 0x8100
	}
	if f.is4() {
		b = append(b, 0x08, 0x00)
	} else {
		b = append(b, 0x86, 0xdd)
	}
	return f.AppendIP(b)
}

// AppendIP writes the packet without an Ethernet header.
func (f *Frame) AppendIP(b []byte) []byte {
	if f.is4() {
		return f.appendIPv4(b)
	}
	return f.appendIPv6(b)
}

func (f *Frame) is4() bool { return f.Dst.Is4() && !f.V6 }

func (f *Frame) ttl() byte {
	if f.TTL == 0 {
		return 64
	}
	return f.TTL
}

func (f *Frame) appendIPv4(b []byte) []byte {
	at := len(b)
	frag := uint16(f.Offset / 8)
	if f.More {
		frag |= 0x2000
	}
	if f.DF {
		frag |= 0x4000
	}
	b = append(b, 0x45, f.TOS, 0, 0, byte(f.ID>>8), byte(f.ID), byte(frag>>8), byte(frag), f.ttl(), f.Proto, 0, 0)
	b = f.Dst.Append(f.Src.Append(b))
	b = append(b, f.Options...)
	for (len(b)-at)%4 != 0 {
		b = append(b, 0)
	}
	header := len(b) - at
	b[at] = 0x40 | byte(header/4)
	b = f.appendTransport(b)
	binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
	binary.BigEndian.PutUint16(b[at+10:], ^Fold(Sum(b[at:at+header])))
	return b
}

func (f *Frame) appendIPv6(b []byte) []byte {
	at := len(b)
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(f.TOS)<<20|f.Label&0xfffff)
	b = append(b, 0, 0, 0, f.ttl())
	b = append(append(b, f.Src[:]...), f.Dst[:]...)
	next := at + 6 // offset of the next header's number
	for _, e := range f.Extensions {
		b[next] = e.Header
		next = len(b)
		b = append(append(b, 0), e.Rest...)
	}
	if f.Fragmented || f.More || f.Offset > 0 {
		b[next] = Fragment
		next = len(b)
		field := uint16(f.Offset)
		if f.More {
			field |= 1
		}
		b = append(b, 0, 0, byte(field>>8), byte(field))
		b = binary.BigEndian.AppendUint32(b, f.ID)
	}
	b[next] = f.Proto
	b = f.appendTransport(b)
	binary.BigEndian.PutUint16(b[at+4:], uint16(len(b)-at-40))
	return b
}

func (f *Frame) appendTransport(b []byte) []byte {
	at := len(b)
	if f.Offset > 0 {
		return append(b, f.Payload...)
	}
	switch f.Proto {
	case TCP:
		return f.appendTCP(b)
	case UDP:
		b = binary.BigEndian.AppendUint16(b, f.SPort)
		b = binary.BigEndian.AppendUint16(b, f.DPort)
		b = binary.BigEndian.AppendUint16(b, uint16(8+len(f.Payload)))
		b = append(append(b, 0, 0), f.Payload...)
		if !f.NoCheck {
			sum := f.Checksum(b[at:])
			if sum == 0 {
				sum = 0xffff
			}
			binary.BigEndian.PutUint16(b[at+6:], sum)
		}
	case SCTP:
		b = binary.BigEndian.AppendUint16(b, f.SPort)
		b = binary.BigEndian.AppendUint16(b, f.DPort)
		b = binary.BigEndian.AppendUint32(b, f.Seq)
		b = append(b, 0, 0, 0, 0, f.Flags, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(f.Payload)))
		b = append(b, f.Payload...)
		binary.LittleEndian.PutUint32(b[at+8:], crc32.Checksum(b[at:], castagnoli))
	case ICMP, ICMPv6: // the payload contains the header
		b = append(b, f.Payload...)
		if len(f.Payload) >= 4 {
			b[at+2], b[at+3] = 0, 0
			var sum uint16
			if f.Proto == ICMP {
				sum = ^Fold(Sum(b[at:]))
			} else {
				sum = f.Checksum(b[at:])
			}
			binary.BigEndian.PutUint16(b[at+2:], sum)
		}
	default:
		b = append(b, f.Payload...)
	}
	return b
}

func (f *Frame) appendTCP(b []byte) []byte {
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, f.SPort)
	b = binary.BigEndian.AppendUint16(b, f.DPort)
	b = binary.BigEndian.AppendUint32(b, f.Seq)
	b = binary.BigEndian.AppendUint32(b, f.Ack)
	b = append(b, byte(5+(len(f.TCPOptions)+3)/4)<<4, f.Flags)
	b = binary.BigEndian.AppendUint16(b, cmp.Or(f.Window, 8192))
	b = append(b, 0, 0, 0, 0)
	b = append(b, f.TCPOptions...)
	for (len(b)-at)%4 != 0 {
		b = append(b, 1)
	}
	b = append(b, f.Payload...)
	binary.BigEndian.PutUint16(b[at+16:], f.Checksum(b[at:]))
	return b
}

// Checksum returns the checksum of a transport header and payload, whose own field is
// zero, with these addresses.
func (f *Frame) Checksum(transport []byte) uint16 {
	return ^Fold(Pseudo(f.Src, f.Dst, f.Proto, len(transport)) + Sum(transport))
}

// Pseudo is the sum of a pseudo-header.
func Pseudo(src, dst Addr, proto byte, bytes int) uint64 {
	from := 0
	if src.Is4() {
		from = 12
	}
	return Sum(src[from:]) + Sum(dst[from:]) + uint64(proto) + uint64(bytes)
}

// List appends endpoints in the format of the Fairlead option.
func List(b []byte, all []Endpoint, v6 bool) []byte {
	for _, e := range all {
		if v6 {
			b = append(b, e.Addr[:]...)
		} else {
			b = append(b, e.Addr[12:]...)
		}
		b = binary.BigEndian.AppendUint16(b, e.Port)
	}
	return b
}

// Endpoint is an address and a port.
type Endpoint struct {
	Addr Addr
	Port uint16
}

// Option4 appends a list as an option of an IPv4 header, padded, with end as its last
// bytes.
func Option4(b []byte, all []Endpoint, end ...byte) []byte {
	at := len(b)
	b = append(List(append(b, 0x9e, byte(2+6*len(all)+len(end))), all, false), end...)
	for (len(b)-at)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// Option6 appends a list as a destination options header that is followed by next, with
// end as its last bytes.
func Option6(b []byte, all []Endpoint, next byte, end ...byte) []byte {
	at := len(b)
	b = append(List(append(b, next, 0, 0x1e, byte(18*len(all)+len(end))), all, true), end...)
	if short := -(len(b) - at) & 7; short == 1 {
		b = append(b, 0)
	} else if short > 1 {
		b = append(b, 1, byte(short-2))
		for range short - 2 {
			b = append(b, 0)
		}
	}
	b[at+1] = byte((len(b)-at)/8 - 1)
	return b
}
