// Package wire builds and parses packets for packetfuzz's generators and models. It
// favors speed over readability, handles every header in one pass, and shares no code
// with the programs or with the product's encoders.
package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// Sum adds bytes as 16-bit words (RFC 1071); an odd last byte is a high byte. Sums can be
// added if all but the last cover an even length.
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

// Fold reduces a sum to 16 bits.
func Fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum)
}

// Same reports whether two sums are the same number: zero has two forms.
func Same(a, b uint64) bool {
	x, y := Fold(a), Fold(b)
	return x == y || x+y == 0xffff && (x == 0 || y == 0)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SCTPError is the error of an SCTP packet's checksum, as a number: 0 if it is correct,
// and the same before and after a change that keeps it as correct or wrong as it was.
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

// HasPorts reports whether a protocol has ports where the programs expect them.
func HasPorts(proto byte) bool { return proto == TCP || proto == UDP || proto == SCTP }

// Addr is an address in IPv6 form; IPv4 addresses are ::ffff:a.b.c.d.
type Addr [16]byte

// Is4 reports whether an address is an IPv4 address.
func (a Addr) Is4() bool {
	return binary.BigEndian.Uint64(a[:8]) == 0 && binary.BigEndian.Uint32(a[8:]) == 0xffff
}

// Zero reports whether an address is ::. For ::ffff:0.0.0.0 it returns false.
func (a Addr) Zero() bool { return a == Addr{} }

// Martian reports whether no host can have an address.
func (a Addr) Martian() bool {
	if a.Is4() {
		return a[12] == 0 || a[12] == 127 || a[12] >= 224
	}
	return a[0] == 0xff || a == Addr{} || a == Addr{15: 1}
}

// StaysOnLink reports whether no IPv6 packet with this address is forwarded.
func (a Addr) StaysOnLink() bool {
	return a[0] == 0xff || a[0] == 0xfe && a[1]&0xc0 == 0x80 || a == Addr{15: 1}
}

// From4 returns the address in four bytes.
func From4(b []byte) (a Addr) {
	a[10], a[11] = 0xff, 0xff
	copy(a[12:], b[:4])
	return a
}

// From6 returns the address in sixteen bytes.
func From6(b []byte) Addr { return Addr(b[:16]) }

// Append appends an address in the form that packets contain.
func (a Addr) Append(b []byte) []byte {
	if a.Is4() {
		return append(b, a[12:]...)
	}
	return append(b, a[:]...)
}

// Put overwrites an address of the same family in a packet.
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

// Turned returns the other direction.
func (t Tuple) Turned() Tuple { return Tuple{t.Dst, t.Src, t.DPort, t.SPort, t.Proto} }
