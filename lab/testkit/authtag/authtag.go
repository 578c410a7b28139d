// Package authtag computes the authentication tags of packets between nodes as described
// in bpf/include/auth.h, for tests that compare with the programs. It shares no code with
// them, and only tests may import it.
package authtag

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/fairlead/fairlead/internal/nodekey"
)

// Place is the location of a list.
type Place byte

// The locations.
const (
	Outer Place = 1 // an option of the outer header
	GUE   Place = 2 // GUE's private data
	Own   Place = 3 // an option of the packet's own header
)

// Packet is what a tag covers.
type Packet struct {
	Place Place
	// Src and Dst are those of the outer header; they are unset without one.
	Src, Dst netip.Addr
	// From and To are the packet's own. Ports and Protocol are 0 if the packet takes the
	// slow path.
	From, To netip.AddrPort
	Protocol byte
	// List contains the endpoints; with Own the VIP is the first.
	List []netip.AddrPort
}

// Tag returns the eight bytes of a tag.
func (p Packet) Tag(key nodekey.Key) []byte {
	mac := Sum(key.K0, key.K1, p.covered())
	return binary.LittleEndian.AppendUint64(nil, mac<<8|uint64(key.ID))
}

func (p Packet) covered() []byte {
	families := byte(0)
	if p.To.Addr().Is6() {
		families = 2
	}
	if p.Dst.Is6() || p.Place == Own && p.To.Addr().Is6() {
		families |= 1
	}
	b := []byte{byte(p.Place), byte(len(p.List)), p.Protocol, families}
	b = binary.BigEndian.AppendUint16(b, p.From.Port())
	b = binary.BigEndian.AppendUint16(b, p.To.Port())
	list := p.List
	if p.Place == Own {
		b = append(b, endpoint(list[0])...)
		list = list[1:]
	} else {
		b = append(append(b, p.Src.AsSlice()...), p.Dst.AsSlice()...)
	}
	b = words(b)
	b = append(append(b, p.From.Addr().AsSlice()...), p.To.Addr().AsSlice()...)
	for _, e := range list {
		b = append(b, endpoint(e)...)
	}
	return words(b)
}

func endpoint(e netip.AddrPort) []byte {
	return binary.BigEndian.AppendUint16(e.Addr().AsSlice(), e.Port())
}

// words pads b with zeros to a multiple of eight bytes.
func words(b []byte) []byte { return append(b, make([]byte, (8-len(b)%8)%8)...) }

// Sum is SipHash-2-4 (Aumasson and Bernstein, 2012).
func Sum(k0, k1 uint64, message []byte) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	compress := func(word uint64) {
		v[3] ^= word
		round(&v)
		round(&v)
		v[0] ^= word
	}
	rest := message
	for ; len(rest) >= 8; rest = rest[8:] {
		compress(binary.LittleEndian.Uint64(rest))
	}
	last := [8]byte{7: byte(len(message))}
	copy(last[:], rest)
	compress(binary.LittleEndian.Uint64(last[:]))
	v[2] ^= 0xff
	for range 4 {
		round(&v)
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func round(v *[4]uint64) {
	v[0] += v[1]
	v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
	v[0] = bits.RotateLeft64(v[0], 32)
	v[2] += v[3]
	v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
	v[0] += v[3]
	v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
	v[2] += v[1]
	v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
	v[2] = bits.RotateLeft64(v[2], 32)
}
