// Package histogram counts durations in fixed buckets, as Prometheus does. It knows nothing
// of what is measured, nor of Prometheus's library. Test it with go test.
package histogram

import (
	"slices"
	"sync"
	"time"
)

// Bounds are the upper bounds of the buckets. They suit the time from a change until it is
// in the kernel: milliseconds usually, seconds under load or at the start.
var Bounds = []time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// Histogram counts durations. The zero value is empty. It is not safe for concurrent use.
type Histogram struct {
	// Counts has a count for each of Bounds, and one for durations above all of them. It is
	// nil while the Histogram is empty.
	Counts []uint64 `json:"counts,omitempty"`
	// Sum is the sum of all durations, in nanoseconds.
	Sum time.Duration `json:"sum"`
}

// Observe adds a duration.
func (h *Histogram) Observe(d time.Duration) {
	if h.Counts == nil {
		h.Counts = make([]uint64, len(Bounds)+1)
	}
	i, _ := slices.BinarySearch(Bounds, d)
	h.Counts[i]++
	h.Sum += d
}

// Clone returns a copy that later observations do not change.
func (h Histogram) Clone() Histogram {
	h.Counts = slices.Clone(h.Counts)
	return h
}

// Shared is a Histogram that is safe for concurrent use.
type Shared struct {
	mu sync.Mutex
	h  Histogram
}

// Observe adds a duration.
func (s *Shared) Observe(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h.Observe(d)
}

// Get returns a copy.
func (s *Shared) Get() Histogram {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.h.Clone()
}

// Cumulative returns the number of all durations, and of those up to each bound, in seconds.
func (h Histogram) Cumulative() (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(Bounds))
	for i, bound := range Bounds {
		if i < len(h.Counts) {
			count += h.Counts[i]
		}
		buckets[bound.Seconds()] = count
	}
	if len(h.Counts) > len(Bounds) {
		count += h.Counts[len(Bounds)]
	}
	return count, buckets
}
