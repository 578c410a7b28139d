package elect

import (
	"encoding/binary"
	"net/netip"
)

// rank is how well a member is placed for an address, by rendezvous hashing:
// of all that offer it the highest has it. Each address has an order of its own
// among all members, so that they are spread evenly, and one that goes leaves
// its addresses, and no others, to those that come next.
func rank(address, member netip.Addr) uint64 {
	h := uint64(0)
	for _, a := range [...]netip.Addr{address, member} {
		b := a.As16()
		h = mix(h ^ binary.BigEndian.Uint64(b[:8]))
		h = mix(h ^ binary.BigEndian.Uint64(b[8:]))
	}
	return h
}

// mix is the finalizer of SplitMix64.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// before says that member a comes before member b for an address.
func before(address, a, b netip.Addr) bool {
	ra, rb := rank(address, a), rank(address, b)
	return ra > rb || ra == rb && b.Less(a)
}
