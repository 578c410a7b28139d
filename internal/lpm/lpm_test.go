package lpm

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// TestLongest compares with a linear search.
func TestLongest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr {
		if rng.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(rng.IntN(3)), byte(rng.IntN(3)), byte(rng.IntN(256))})
		}
		return netip.AddrFrom16([16]byte{0xfd, 15: byte(rng.IntN(256))})
	}
	for range 200 {
		var m Map[int]
		all := map[netip.Prefix]int{}
		for i := range rng.IntN(20) {
			a := address()
			p := netip.PrefixFrom(a, rng.IntN(a.BitLen()+1))
			m.Put(p, i)
			all[p.Masked()] = i
		}
		for range 50 {
			a := address()
			want, best := 0, netip.Prefix{}
			for p, v := range all {
				if p.Contains(a) && (!best.IsValid() || p.Bits() > best.Bits()) {
					want, best = v, p
				}
			}
			if p, v, ok := m.Lookup(a); p != best || v != want || ok != best.IsValid() || m.Covers(a) != ok {
				t.Fatalf("%s in %v: %s %d %v, want %s %d", a, all, p, v, ok, best, want)
			}
		}
	}
}
