// Package histogram counts times for quantiles.
//
// What does not belong here: what is measured (scenario).
package histogram

import "math"

// Times counts times by exponent and the first bits of their fraction. Each time is
// within 1.6 % of the value of its slot.
type Times struct {
	counts []uint32
	total  uint64
}

// dropped is the number of float64 bits that are ignored. shortest is the slot of a
// nanosecond, the shortest time that is distinguished.
const dropped = 52 - 5

var shortest = int(math.Float64bits(1e-9) >> dropped)

func (h *Times) Add(seconds float64) {
	at := max(0, int(math.Float64bits(seconds)>>dropped)-shortest)
	if at >= len(h.counts) {
		h.counts = append(h.counts, make([]uint32, at+1-len(h.counts))...)
	}
	h.counts[at]++
	h.total++
}

// Quantile returns a quantile of the times, in seconds, or NaN without any.
func (h *Times) Quantile(share float64) float64 {
	wanted := uint64(math.Ceil(share * float64(h.total)))
	for at, count := range h.counts {
		if uint64(count) >= wanted && wanted > 0 {
			place := uint64(at+shortest)<<dropped | 1<<(dropped-1)
			return math.Float64frombits(place)
		}
		wanted -= min(wanted, uint64(count))
	}
	return math.NaN()
}
