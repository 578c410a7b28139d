package flowtable

import (
	"math/rand/v2"
	"testing"
)

// TestDrift splits random counts and corrects them.
func TestDrift(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	of := func(n int) uint64 {
		return uint64(int64(rng.IntN(n)-n/3)*Active + int64(rng.IntN(n)-n/3))
	}
	for range 2000 {
		before, counted := of(9), of(9)
		if got := before + drift(before, counted, before); got != counted {
			t.Errorf("nothing changed, counted %v, is %v", Halves(counted), Halves(got))
		}
		after := of(9)
		got, a, c, b := Halves(after+drift(before, counted, after)), Halves(after), Halves(counted), Halves(before)
		for i := range got {
			lo, hi := min(b[i], a[i]), max(b[i], a[i])
			want := a[i] + c[i] - min(max(c[i], lo), hi)
			if got[i] != want {
				t.Errorf("from %v to %v, counted %v: %v, want %d", b, a, c, got, want)
			}
		}
	}
}
