// Package draw generates the random numbers of experiments that do not simulate packets:
// independent streams, and the amount of work per request.
package draw

import (
	"github.com/fairlead/fairlead/lab/sim/stochastic"
)

// Stream is a stream of random numbers.
type Stream struct{ s *stochastic.Stream }

// NewStream returns the stream with number use of a seed. Different streams are
// independent.
func NewStream(seed, use uint32) Stream {
	// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
	z := (uint64(seed)<<32 | uint64(use)) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	s := stochastic.NewStream(uint32(z^z>>31) % 4294944442)
	for range 8 { // the first numbers are correlated with the seed
		s.Float()
	}
	return Stream{s}
}

// Float returns a number between 0 and 1, both excluded.
func (s Stream) Float() float64 { return s.s.Float() }

// Below returns an integer from 0 to n-1.
func (s Stream) Below(n int) int { return int(float64(s.s.Float() * float64(n))) }

var exponential = stochastic.Exponential(1)

// Exp returns an exponentially distributed number with mean 1.
func (s Stream) Exp() float64 { return exponential(s.s) }
