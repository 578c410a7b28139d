// Package maglev builds a ring from weighted backends: a lookup table in which every
// backend owns slots in proportion to its weight, and which changes little when the
// backends change (Eisenbud et al., "Maglev", NSDI 2016, section 3.4). It is pure: the
// ring depends only on the backends' identities and weights, so every load balancer
// computes the same ring, regardless of the order in which backends are added.
package maglev

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
)

// Backend is one owner of slots.
type Backend struct {
	// ID seeds the permutation: the backend's own address and port.
	ID netip.AddrPort
	// Weight is the relative share of slots; with 0 the backend owns none.
	Weight uint32
}

// None marks a slot without an owner, in a ring where no backend has a weight.
const None = ^uint32(0)

// Build returns a ring of size slots, each the index of its owner in backends. It returns
// an error if size is not a prime. No two backends may share an ID.
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

// walker iterates over one backend's permutation of the slots.
type walker struct {
	index          uint32 // in the caller's backends
	next, skip     uint32 // the next preferred slot, and the stride to the one after
	skip2, skip4   uint32 // two strides, and four
	unit           uint64 // for nearest; 0 until it is needed
	weight, credit uint64
}

// walkers returns a walker for each backend with a weight, ordered by ID.
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

// hash mixes an identity into 64 bits: each half of the address and the port go through
// the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). It must never change,
// because load balancers of different versions must compute the same ring.
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

// IsPrime reports whether n is a prime.
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

// PrimeBelow returns the greatest prime below n, or 2.
func PrimeBelow(n int) int {
	for n--; n > 2 && !IsPrime(n); n-- {
	}
	return max(n, 2)
}

// PrimeAbove returns the smallest prime above n.
func PrimeAbove(n int) int {
	for n++; !IsPrime(n); n++ {
	}
	return n
}
