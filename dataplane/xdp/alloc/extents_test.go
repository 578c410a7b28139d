package alloc

import (
	"math/rand/v2"
	"testing"
)

// twinExtents is a reference implementation with a state for each position.
type twinExtents []byte // 0 free, 1 taken, 2 resting

func (x twinExtents) firstFit(n int) (int, bool) {
	run := 0
	for i, state := range x {
		if run++; state != 0 {
			run = 0
		}
		if run == n {
			return i - n + 1, true
		}
	}
	return 0, false
}

func (x twinExtents) set(e Extent, state byte) {
	for i := e.First; i < e.End(); i++ {
		x[i] = state
	}
}

func TestExtentsMatchTheTwin(t *testing.T) {
	const places = 200
	rng := rand.New(rand.NewPCG(1, 2))
	x, twin := NewExtents(places), make(twinExtents, places)
	var taken []Extent
	refused, marked := 0, 0
	for range 20000 {
		switch n := 1 + rng.IntN(30); rng.IntN(8) {
		case 0, 1, 2:
			at, fits := twin.firstFit(n)
			e, ok := x.Take(uint32(n))
			if ok != fits || ok && int(e.First) != at {
				t.Fatalf("took %v, %v; the first fit is %d, %v", e, ok, at, fits)
			}
			if !ok {
				refused++
				continue
			}
			twin.set(e, 1)
			taken = append(taken, e)
		case 3:
			e := Extent{uint32(rng.IntN(places - n)), uint32(n)}
			free := true
			for i := e.First; i < e.End(); i++ {
				free = free && twin[i] == 0
			}
			if x.Mark(e) != free {
				t.Fatalf("marked %v: want %v", e, free)
			}
			if free {
				marked++
				twin.set(e, 1)
				taken = append(taken, e)
			}
		case 4, 5, 6:
			if len(taken) > 0 {
				i := rng.IntN(len(taken))
				x.GiveBack(taken[i])
				twin.set(taken[i], 2)
				taken = append(taken[:i], taken[i+1:]...)
			}
		case 7:
			x.Wake()
			for i, state := range twin {
				if state == 2 {
					twin[i] = 0
				}
			}
		}
	}
	if refused < 100 || marked < 100 {
		t.Errorf("only %d refused, %d marked", refused, marked)
	}
	for _, e := range taken {
		x.GiveBack(e)
	}
	x.Wake()
	if len(x.free) != 1 || x.free[0] != (Extent{0, places}) {
		t.Errorf("all given back: %v", x.free)
	}
}
