package eventqueue

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Events come in sorted order, however they are added.
func TestOrder(t *testing.T) {
	type event struct{ at, n int64 }
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var a Agenda[event]
		var want, got []event
		take := func(end int64) {
			for e, ok := a.Next(end); ok; e, ok = a.Next(end) {
				if a.Now() != e.at {
					t.Fatalf("now is %d in an event of %d", a.Now(), e.at)
				}
				got = append(got, e)
			}
		}
		for n := range int64(rng.IntN(100)) {
			e := event{a.Now() + rng.Int64N(20), n}
			want = append(want, e)
			a.At(e.at, e)
			if rng.IntN(4) == 0 {
				take(a.Now() + rng.Int64N(10))
			}
		}
		take(math.MaxInt64)
		slices.SortStableFunc(want, func(a, b event) int { return int(a.at - b.at) })
		if !slices.Equal(got, want) || a.Len() != 0 {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// An event in the past happens now, and not before past events.
func TestPastIsNow(t *testing.T) {
	var a Agenda[string]
	a.At(10, "first")
	a.Next(11)
	a.At(3, "late")
	if e, ok := a.Next(11); !ok || e != "late" || a.Now() != 10 {
		t.Errorf("%q, %v, at %d", e, ok, a.Now())
	}
}
