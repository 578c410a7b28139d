// Package draw makes the random numbers of experiments that are not about packets:
// streams that have nothing to do with each other, and how much work requests are.
package draw

import "github.com/fairlead/fairlead/lab/sim"

// Stream is random numbers.
type Stream struct{ s *sim.Stream }

// NewStream gives the stream number use of a seed: different ones have nothing to
// do with each other.
func NewStream(seed, use uint32) Stream {
	// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
	z := (uint64(seed)<<32 | uint64(use)) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	s := sim.NewStream(uint32(z^z>>31) % 4294944442)
	for range 8 { // the first ones are of the seed more than of chance
		s.Float()
	}
	return Stream{s}
}

// Float gives a number between 0 and 1, neither of them.
func (s Stream) Float() float64 { return s.s.Float() }

// Below gives a whole number from 0 to n-1.
func (s Stream) Below(n int) int { return int(float64(s.s.Float() * float64(n))) }

var exponential = sim.Exponential(1)

// Exp gives a number of the exponential distribution with mean 1.
func (s Stream) Exp() float64 { return exponential(s.s) }
