// Package draw makes random times of the experiments, the same for a seed on any
// machine: its logarithm and exponential are of additions, multiplications and
// divisions that round as IEEE 754 says, while those of math differ by processor.
package draw

import (
	"math"

	"github.com/fairlead/fairlead/sim"
)

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

// Exp gives a number of the exponential distribution with mean 1.
func (s Stream) Exp() float64 { return -Ln(s.s.Float()) }

// normal gives a number of the standard normal distribution, by Marsaglia's polar
// method.
func (s Stream) normal() float64 {
	for {
		x, y := float64(2*s.Float())-1, float64(2*s.Float())-1
		if q := float64(x*x) + float64(y*y); q < 1 && q > 0 {
			return x * math.Sqrt(-2*Ln(q)/q)
		}
	}
}

// ln2 is the natural logarithm of 2.
const ln2 = 0.693147180559945309417232121458176568

// odd are 1/23, 1/21, … 1/1, and factorials 1/14!, 1/13!, … 1/0!.
var (
	odd        = [...]float64{1. / 23, 1. / 21, 1. / 19, 1. / 17, 1. / 15, 1. / 13, 1. / 11, 1. / 9, 1. / 7, 1. / 5, 1. / 3, 1}
	factorials = [...]float64{1. / 87178291200, 1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880,
		1. / 40320, 1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 1. / 2, 1, 1}
)

// Ln is the natural logarithm of a positive number.
func Ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	z := (m - 1) / (m + 1)
	square, sum := float64(z*z), 0.0
	for _, c := range odd { // ln m = 2 (z + z³/3 + z⁵/5 + …)
		sum = float64(sum*square) + c
	}
	return float64(float64(e)*ln2) + float64(2*float64(z*sum))
}

// Exp is e to the power of x.
func Exp(x float64) float64 {
	k := math.Floor(x/ln2 + 0.5)
	r, sum := x-float64(k*ln2), 0.0
	for _, c := range factorials { // 1 + r + r²/2! + r³/3! + …
		sum = float64(sum*r) + c
	}
	return math.Ldexp(sum, int(k))
}

// Power is x to the power of y, for a positive x.
func Power(x, y float64) float64 { return Exp(float64(y * Ln(x))) }
