package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A sorted list of all durations is the reference model.
func TestHistogramAgreesWithSortedList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var h Histogram
		var all []time.Duration
		for range 1 + random.IntN(2000) {
			d := time.Duration(math.Exp(random.Float64()*24)) * time.Microsecond
			h.Add(d)
			all = append(all, d)
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
			want := all[max(int(math.Ceil(q*float64(len(all)))), 1)-1]
			if got := h.Quantile(q); got < want || got > want+want/subBuckets+time.Microsecond {
				t.Fatalf("quantile %v of %d is %v, want %v or at most 1/16 more", q, len(all), got, want)
			}
		}
	}
}

func TestHistogramEdges(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Count() != 0 {
		t.Error("an empty histogram is not empty")
	}
	h.Add(-time.Second)
	h.Add(math.MaxInt64)
	if h.Count() != 2 || h.Quantile(0.5) != 0 || h.Quantile(1) < 9*time.Hour {
		t.Errorf("count %d, quantiles %v %v", h.Count(), h.Quantile(0.5), h.Quantile(1))
	}
	for b := 1; b < bucketCount; b++ {
		if bucketOf(upper(b)) != b || bucketOf(upper(b-1)+1) != b {
			t.Fatalf("bucket %d goes from %d to %d, which are in %d and %d",
				b, upper(b-1)+1, upper(b), bucketOf(upper(b-1)+1), bucketOf(upper(b)))
		}
	}
}
