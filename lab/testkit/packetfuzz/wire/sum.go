// Package wire writes and reads packets for packetfuzz's generators and models. It
// is slow to read and quick to run: it knows every header at once and shares no
// code with the programs, nor with the encoders that the product has.
package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// Sum adds bytes up as 16-bit words (RFC 1071); an odd last one is a high byte.
// Sums add up, if all but the last are of even length.
func Sum(b []byte) (sum uint64) {
	for len(b) >= 4 {
		sum += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		sum += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	return sum
}

// Fold brings a sum to 16 bits.
func Fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum)
}

// Same says that two sums are one number: zero has two forms.
func Same(a, b uint64) bool {
	x, y := Fold(a), Fold(b)
	return x == y || x+y == 0xffff && (x == 0 || y == 0)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SCTPError is what is wrong with the checksum of an SCTP packet, as a number: 0
// where it is right, and the same before and after a change that keeps it as right
// or wrong as it was.
func SCTPError(b []byte) uint32 {
	crc := crc32.Update(0, castagnoli, b[:8])
	crc = crc32.Update(crc, castagnoli, []byte{0, 0, 0, 0})
	return crc32.Update(crc, castagnoli, b[12:]) ^ binary.LittleEndian.Uint32(b[8:])
}

// Numbers of protocols and headers.
const (
	ICMP     = 1
	IPIP     = 4
	TCP      = 6
	UDP      = 17
	IPv6     = 41
	Routing  = 43
	Fragment = 44
	AH       = 51
	ICMPv6   = 58
	NoNext   = 59
	DstOpts  = 60
	SCTP     = 132
	HopOpts  = 0
)

// HasPorts says that a protocol has ports where the programs look for them.
func HasPorts(proto byte) bool { return proto == TCP || proto == UDP || proto == SCTP }

// Addr is an address as IPv6 has it; IPv4's are ::ffff:a.b.c.d.
type Addr [16]byte

// Is4 says that an address is IPv4's.
func (a Addr) Is4() bool {
	return binary.BigEndian.Uint64(a[:8]) == 0 && binary.BigEndian.Uint32(a[8:]) == 0xffff
}

// Zero says that an address is :: or, for IPv4, ::ffff:0.0.0.0 is not.
func (a Addr) Zero() bool { return a == Addr{} }

// StaysOnLink says that no IPv6 packet with an address is forwarded.
func (a Addr) StaysOnLink() bool {
	return a[0] == 0xff || a[0] == 0xfe && a[1]&0xc0 == 0x80 || a == Addr{15: 1}
}

// From4 gives the address in four bytes.
func From4(b []byte) (a Addr) {
	a[10], a[11] = 0xff, 0xff
	copy(a[12:], b[:4])
	return a
}

// From6 gives the address in sixteen bytes.
func From6(b []byte) Addr { return Addr(b[:16]) }

// Bytes appends an address as it is in packets.
func (a Addr) Append(b []byte) []byte {
	if a.Is4() {
		return append(b, a[12:]...)
	}
	return append(b, a[:]...)
}

// Put writes an address over one of the same family in a packet.
func (a Addr) Put(b []byte, v6 bool) {
	if v6 {
		copy(b, a[:])
	} else {
		copy(b[:4], a[12:])
	}
}

// Tuple is a flow's ends. It is the key of the models' tables.
type Tuple struct {
	Src, Dst     Addr
	SPort, DPort uint16
	Proto        byte
}

// Turned gives the other direction.
func (t Tuple) Turned() Tuple { return Tuple{t.Dst, t.Src, t.DPort, t.SPort, t.Proto} }
