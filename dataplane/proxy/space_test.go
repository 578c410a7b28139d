package proxy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever is taken and released, nothing is allocated twice, nothing is lost, and
// nothing is reused before it is woken.
func TestSpace(t *testing.T) {
	const size = 500
	r := rand.New(rand.NewPCG(5, 6))
	s := newSpace(size, []extent{{10, 5}, {100, 1}})
	const free, taken, rests = 0, 1, 2
	var places [size]int
	mark := func(e extent, from, to int) {
		t.Helper()
		for i := e.first; i < e.end(); i++ {
			if places[i] != from {
				t.Fatalf("place %d of %v is %d, not %d", i, e, places[i], from)
			}
			places[i] = to
		}
	}
	programmed := []extent{{10, 5}, {100, 1}}
	for _, e := range programmed {
		mark(e, free, taken)
	}
	for range 20000 {
		n := uint32(1 + r.IntN(12))
		switch first, ok := uint32(0), false; r.IntN(5) {
		case 0, 1:
			if first, ok = s.take(n); ok {
				mark(extent{first, n}, free, taken)
				programmed = append(programmed, extent{first, n})
			}
		case 2, 3:
			if len(programmed) > 0 {
				i := r.IntN(len(programmed))
				mark(programmed[i], taken, rests)
				s.giveBack(programmed[i])
				programmed = slices.Delete(programmed, i, i+1)
			}
		default:
			for i := range places {
				if places[i] == rests {
					places[i] = free
				}
			}
			s.wake()
		}
		used := 0
		for _, p := range places {
			used += min(p, 1)
		}
		if s.used() != used {
			t.Fatalf("%d positions are used, want %d", s.used(), used)
		}
	}
	for _, e := range programmed {
		s.giveBack(e)
	}
	s.wake()
	if first, ok := s.take(size); !ok || first != 0 {
		t.Errorf("all given back, and %d places in a row are not there", size)
	}
}
