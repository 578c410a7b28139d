package load

import (
	"iter"
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in exponential buckets: 16 for each doubling, so a quantile
// is at most 1/16 too large. The zero value is empty.
type Histogram struct {
	buckets [bucketCount]uint64
}

const (
	subBits     = 4
	subBuckets  = 1 << subBits
	bucketCount = 32 * subBuckets // up to 2^35 µs: nine hours
)

// bucketOf returns the bucket of a duration in microseconds: small ones have a bucket
// each, larger ones are grouped by their leading bits.
func bucketOf(us uint64) int {
	if us < subBuckets {
		return int(us)
	}
	shift := bits.Len64(us) - subBits - 1
	return min(shift*subBuckets+int(us>>shift), bucketCount-1)
}

// upper is the largest duration of a bucket, in microseconds.
func upper(bucket int) uint64 {
	if bucket < subBuckets {
		return uint64(bucket)
	}
	shift := bucket/subBuckets - 1
	return uint64(bucket-shift*subBuckets+1)<<shift - 1
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) { h.buckets[bucketOf(uint64(max(d, 0).Microseconds()))]++ }

// Count is the number of durations.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, b := range h.buckets {
		n += b
	}
	return n
}

// Quantile returns a duration that a share q of all does not exceed: 0.5 for the median,
// 1 for the longest; 0 if the histogram is empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	want := max(uint64(math.Ceil(q*float64(total))), 1)
	var n uint64
	for i, b := range h.buckets {
		if n += b; n >= want {
			return time.Duration(upper(i)) * time.Microsecond
		}
	}
	return 0
}

// Buckets returns the non-empty buckets, the smallest first: the longest duration of
// each, and the count.
func (h *Histogram) Buckets() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		for i, n := range h.buckets {
			if n > 0 && !yield(time.Duration(upper(i))*time.Microsecond, n) {
				return
			}
		}
	}
}

// minus returns what was added since o, an earlier copy.
func (h *Histogram) minus(o *Histogram) Histogram {
	var d Histogram
	for i := range h.buckets {
		d.buckets[i] = h.buckets[i] - o.buckets[i]
	}
	return d
}
