// Package maglev turns weighted backends into a ring: a lookup table in which
// every backend owns slots by its weight, and which changes little when the
// backends do (Eisenbud et al., "Maglev", NSDI 2016, section 3.4). It is pure:
// the ring depends on the backends' identities and weights alone, so every
// balancer computes the same one, whatever the order it learnt of them.
package maglev

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
)

// Backend is one owner of slots.
type Backend struct {
	// ID is what the ring is seeded by: the server's own address and port.
	ID netip.AddrPort
	// Weight is the share of slots relative to the others; 0 owns none.
	Weight uint32
}

// None marks a slot without an owner, in a ring where no backend has a weight.
const None = ^uint32(0)

// Build gives a ring of size slots, each the index in backends of its owner.
// size must be a prime, or it is an error; two backends must not share an ID.
func Build(size int, backends []Backend) ([]uint32, error) {
	if !IsPrime(size) {
		return nil, fmt.Errorf("ring size %d is not a prime: the nearest are %d and %d",
			size, PrimeBelow(size), PrimeAbove(size))
	}
	ring := make([]uint32, size)
	ws := walkers(uint32(size), backends)
	if len(ws) == 0 {
		for i := range ring {
			ring[i] = None
		}
		return ring, nil
	}
	fill(ring, ws)
	return ring, nil
}

// walker goes through one backend's permutation of the slots.
type walker struct {
	index          uint32 // in the caller's backends
	next, skip     uint32 // the next slot wished for, and the stride to the one after
	skip2, skip4   uint32 // two strides, and four
	unit           uint64 // for nearest; 0 until it is needed
	weight, credit uint64
}

// walkers gives those that own slots, in the order of their identities.
func walkers(size uint32, backends []Backend) []walker {
	var ws []walker
	for i, b := range backends {
		if b.Weight == 0 {
			continue
		}
		h1, h2 := hash(b.ID, 0), hash(b.ID, 1)
		w := walker{
			index:  uint32(i),
			next:   uint32(h1 % uint64(size)),
			skip:   uint32(h2%uint64(size-1)) + 1,
			weight: uint64(b.Weight),
		}
		w.skip2 = after(w.skip, w.skip, size)
		w.skip4 = after(w.skip2, w.skip2, size)
		ws = append(ws, w)
	}
	slices.SortFunc(ws, func(a, b walker) int {
		return backends[a.index].ID.Compare(backends[b.index].ID)
	})
	return ws
}

// hash mixes an identity into 64 bits: each half of the address and the port
// through the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). It
// must never change: balancers of two versions share their ring.
func hash(id netip.AddrPort, seed uint64) uint64 {
	a := id.Addr().As16()
	h := mix(seed + 0x9e3779b97f4a7c15)
	h = mix(h ^ be64(a[:8]))
	h = mix(h ^ be64(a[8:]))
	return mix(h ^ uint64(id.Port()))
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return bits.RotateLeft64(z^z>>31, 17)
}

func be64(b []byte) (v uint64) {
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

// IsPrime says whether n is a prime.
func IsPrime(n int) bool {
	if n < 2 {
		return false
	}
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// PrimeBelow gives the greatest prime below n, or 2.
func PrimeBelow(n int) int {
	for n--; n > 2 && !IsPrime(n); n-- {
	}
	return max(n, 2)
}

// PrimeAbove gives the smallest prime above n.
func PrimeAbove(n int) int {
	for n++; !IsPrime(n); n++ {
	}
	return n
}
