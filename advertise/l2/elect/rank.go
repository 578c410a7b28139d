package elect

import (
	"encoding/binary"
	"net/netip"
)

// rank is the suitability of a member for an address, by rendezvous hashing: of all
// members that offer the address, the highest one has it. Each address has its own order
// of the members, so that addresses are spread evenly, and a member that leaves only
// moves its own addresses, to those that come next.
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

// before reports whether member a precedes member b for an address.
func before(address, a, b netip.Addr) bool {
	ra, rb := rank(address, a), rank(address, b)
	return ra > rb || ra == rb && b.Less(a)
}
