package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// Odd adds something uncommon to a frame: options or extension headers, VLAN tags,
// fragmentation. Most frames stay as they are.
func (f *Frame) Odd(rng *rand.Rand) {
	f.odd(rng)
	for rng.IntN(4) == 0 {
		f.odd(rng)
	}
}

func (f *Frame) odd(rng *rand.Rand) {
	switch rng.IntN(16) {
	case 0:
		for range 1 + rng.IntN(2) {
			f.VLANs = append(f.VLANs, uint16(rng.Uint32()))
		}
		if rng.IntN(4) == 0 {
			f.VLANType = 0x88a8
		}
	case 1, 2:
		if f.is4() {
			f.Options = RandomOptions(rng, f.Options)
		} else {
			f.Extensions = append(f.Extensions, RandomExtensions(rng)...)
		}
	case 3, 4:
		f.fragment(rng)
	case 5:
		f.TTL = byte(1 + rng.IntN(2))
	case 7:
		f.V6 = rng.IntN(4) == 0 // with IPv4-mapped addresses
	case 6: // as large as the MTU, or a little less or more
		n := []int{1500, 1400, 1300, 1280, 576, 1480, 1460}[rng.IntN(7)] - 20 - rng.IntN(160)
		f.Payload = Pattern(f.Payload, max(0, n+rng.IntN(24)))
	}
}

// Transport sets a frame's protocol, TCP, UDP or SCTP if it is 0, its payload and its numbers.
func (f *Frame) Transport(rng *rand.Rand, proto byte) {
	if f.Proto = proto; proto == 0 {
		f.Proto = []byte{TCP, UDP, SCTP}[rng.IntN(3)]
	}
	f.Payload = Pattern(f.Payload, []int{0, 1, rng.IntN(40), rng.IntN(300)}[rng.IntN(4)])
	f.Number(rng)
}

// Number sets the sequence numbers of a frame. The values are few, so that many match
// those of other packets, exactly or nearly.
func (f *Frame) Number(rng *rand.Rand) {
	some := []uint32{0, 1, 2, 3, 100, 1 << 16, 1<<16 + 1, 1 << 20, 1<<20 + 1, 1 << 31, ^uint32(0)}
	one := func() uint32 { return some[min(rng.IntN(len(some)), rng.IntN(len(some)))] + uint32(rng.IntN(2)) }
	f.Seq, f.Ack = one(), one()
	if rng.IntN(8) == 0 {
		f.Seq, f.Ack = rng.Uint32(), rng.Uint32()
	}
	if f.Proto == SCTP && len(f.Payload) >= 4 { // an INIT's own tag
		binary.BigEndian.PutUint32(f.Payload, one())
	}
}

// pattern is what Pattern repeats.
var pattern = func() (all [256]byte) {
	for i := range all {
		all[i] = byte(i * 7)
	}
	return all
}()

// Pattern returns n bytes.
func Pattern(b []byte, n int) []byte {
	b = slices.Grow(b[:0], n)[:n]
	for at := 0; at < n; {
		at += copy(b[at:], pattern[:])
	}
	return b
}

// fragment makes a frame the first, a middle or the last fragment of a packet; or,
// rarely, one that no sender creates.
func (f *Frame) fragment(rng *rand.Rand) {
	f.ID = uint32(rng.IntN(3))
	n := rng.IntN(60)
	switch rng.IntN(5) {
	case 0, 1:
		f.More = true
	case 2:
		f.Offset = 8 * (3 + rng.IntN(20))
	case 3:
		f.Offset, f.More = 8*(1+rng.IntN(20)), true
	case 4:
		f.Fragmented = true
		f.Offset = 8 * rng.IntN(4)
		if rng.IntN(4) == 0 {
			f.Offset = 0xfff8 - 8*rng.IntN(9)
		}
	}
	if rng.IntN(4) > 0 && f.More {
		n = n &^ 7
		if f.Offset == 0 && f.Proto == TCP { // including its header, a multiple of eight
			n += 4
		} else if f.Offset == 0 && f.Proto == SCTP {
			n &^= 7
		}
	}
	f.Payload = Pattern(f.Payload, n)
}

// RandomOptions returns options of an IPv4 header.
func RandomOptions(rng *rand.Rand, b []byte) []byte {
	b = b[:0]
	for range 1 + rng.IntN(3) {
		n := rng.IntN(8)
		switch kind := []byte{1, 1, 7, 68, 131, 137, 148, 0x9e, 0x9e, 0, byte(rng.Uint32())}[rng.IntN(11)]; kind {
		case 0, 1:
			b = append(b, kind)
		case 0x9e:
			b = append(b, kind, byte(2+6*(1+rng.IntN(3))))
			b = Random(rng, b, int(b[len(b)-1])-2)
		default:
			b = append(b, kind, byte(2+n))
			b = Random(rng, b, n)
		}
	}
	return b[:min(len(b), 40)]
}

// RandomExtensions returns headers between an IPv6 header and its transport.
func RandomExtensions(rng *rand.Rand) (all []Extension) {
	for range 1 + rng.IntN(3)*rng.IntN(2) + 9*(rng.IntN(40)/39) {
		e := Extension{Header: []byte{HopOpts, DstOpts, DstOpts, Routing, AH, Fragment}[rng.IntN(6)]}
		units := rng.IntN(3)
		e.Rest = append(e.Rest, byte(units))
		switch e.Header {
		case Fragment:
			e.Rest = binary.BigEndian.AppendUint16(e.Rest[:0], 0)
			e.Rest = append(e.Rest, 0, 0, 0, 0, 7)
		case Routing:
			e.Rest = append(e.Rest, byte(rng.IntN(5)), byte(rng.IntN(2)), 0, 0, 0, 0)
			e.Rest = Random(rng, e.Rest, 8*units)
		case AH:
			e.Rest[0] = byte(2*units + 0)
			e.Rest = Random(rng, e.Rest, 6+8*units)
		default:
			e.Rest = append(e.Rest, 1, byte(4+8*units))
			e.Rest = append(e.Rest, make([]byte, 4+8*units)...)
		}
		all = append(all, e)
	}
	return all
}

// Random appends random bytes.
func Random(rng *rand.Rand, b []byte, n int) []byte {
	for range n {
		b = append(b, byte(rng.Uint32()))
	}
	return b
}

// IPOf returns the IP packet of a frame without trailing bytes, at least its header, or
// nil.
func IPOf(frame []byte) []byte {
	l3 := 14
	for l3+4 <= len(frame) && (frame[l3-2] == 0x81 && frame[l3-1] == 0 || frame[l3-2] == 0x88 && frame[l3-1] == 0xa8) {
		l3 += 4
	}
	b := frame[min(l3, len(frame)):]
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		return b[:max(20, min(len(b), int(binary.BigEndian.Uint16(b[2:]))))]
	case len(b) >= 40 && b[0]>>4 == 6:
		return b[:min(len(b), 40+int(binary.BigEndian.Uint16(b[4:])))]
	}
	return nil
}

// Error makes the frame an ICMP error about a packet, to its sender, from an address. It
// quotes as much as fits, or less.
func (f *Frame) Error(rng *rand.Rand, packet []byte, from Addr) {
	v6 := packet[0]>>4 == 6
	head := []byte{[]byte{3, 3, 11, 12, 4, 5}[rng.IntN(6)], byte(rng.IntN(6)), 0, 0, 0, 0, 5, 100}
	f.Proto, f.Src = ICMP, from
	n := 8 + 20*(1+rng.IntN(2))
	if v6 {
		head[0] = []byte{1, 2, 3, 4, 0, 5}[rng.IntN(6)]
		f.Proto, f.Dst = ICMPv6, From6(packet[8:])
		n += 40
	} else {
		f.Dst = From4(packet[12:])
	}
	if rng.IntN(2) == 0 {
		n = len(packet)
	} else if rng.IntN(8) == 0 {
		n = rng.IntN(len(packet) + 1)
	}
	f.Payload = append(append(f.Payload[:0], head...), packet[:min(n, len(packet), 1000)]...)
}

// Turn turns a packet into its answer, except for checksums.
func Turn(ip []byte) {
	at, size, header := 12, 4, max(20, int(ip[0]&15)*4)
	if ip[0]>>4 == 6 {
		at, size, header = 8, 16, 40
	}
	src := append([]byte(nil), ip[at:at+size]...)
	copy(ip[at:], ip[at+size:at+2*size])
	copy(ip[at+size:], src)
	if header+4 <= len(ip) {
		ports := binary.BigEndian.Uint32(ip[header:])
		binary.BigEndian.PutUint32(ip[header:], ports<<16|ports>>16)
	}
}
