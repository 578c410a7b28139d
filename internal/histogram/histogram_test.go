package histogram

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestLikeSlowTwin compares with counting every duration for every bound.
func TestLikeSlowTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	var all []time.Duration
	for range 5000 {
		d := time.Duration(r.Int64N(int64(10 * time.Millisecond)))
		if r.IntN(4) == 0 {
			d = Bounds[r.IntN(len(Bounds))] + time.Duration(r.IntN(3)-1)
		}
		h.Observe(d)
		all = append(all, d)
	}
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	count, buckets := h.Cumulative()
	if count != uint64(len(all)) || h.Sum != sum || len(buckets) != len(Bounds) {
		t.Errorf("count %d of %d, sum %s of %s, %d buckets", count, len(all), h.Sum, sum, len(buckets))
	}
	for _, bound := range Bounds {
		want := len(slices.DeleteFunc(slices.Clone(all), func(d time.Duration) bool { return d > bound }))
		if got := buckets[bound.Seconds()]; got != uint64(want) {
			t.Errorf("up to %s: %d, want %d", bound, got, want)
		}
	}
}

func TestEmptyAndClone(t *testing.T) {
	var h Histogram
	if count, buckets := h.Cumulative(); count != 0 || buckets[1] != 0 {
		t.Errorf("%d, %v", count, buckets)
	}
	h.Observe(time.Hour)
	c := h.Clone()
	h.Observe(time.Hour)
	if count, buckets := c.Cumulative(); count != 1 || buckets[60] != 0 {
		t.Errorf("the clone has %d, %v", count, buckets)
	}
}
