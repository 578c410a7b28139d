package stochastic

import "math"

// Draw returns a random number. It may use the Stream, and no other shared state.
type Draw func(*Stream) float64

// Always returns a constant.
func Always(x float64) Draw { return func(*Stream) float64 { return x } }

// Exponential draws from the exponential distribution with the given mean.
func Exponential(mean float64) Draw {
	return func(s *Stream) float64 { return -mean * Ln(s.Float()) }
}

// Pareto draws from the Pareto distribution with the given shape, bounded by low and
// high. The smaller the shape, the heavier the tail.
func Pareto(shape, low, high float64) Draw {
	cut := 1 - Exp(shape*(Ln(low)-Ln(high))) // the probability that the unbounded one is below high
	return func(s *Stream) float64 {
		x := float64(cut * s.Float())
		return min(high, low*Exp(-Ln(1-x)/shape))
	}
}

// Lognormal draws numbers whose logarithm is normally distributed, with the given median.
// sigma is the standard deviation of the logarithm.
func Lognormal(median, sigma float64) Draw {
	return func(s *Stream) float64 { return median * Exp(sigma*normal(s)) }
}

// normal draws from the standard normal distribution, using Marsaglia's polar method.
func normal(s *Stream) float64 {
	for {
		u, v := float64(2*s.Float())-1, float64(2*s.Float())-1
		q := float64(u*u) + float64(v*v)
		if q > 0 && q < 1 {
			return u * math.Sqrt(-2*Ln(q)/q)
		}
	}
}

// Ln and Exp are like those of package math, but bit-identical on any machine. Package
// math has assembly on some, and a compiler may fuse a product and a sum unless a
// conversion separates them.

// Ln returns the logarithm of a positive number, from the series of 2 artanh(z) for z =
// (f-1)/(f+1), with f between the square roots of 1/2 and 2.
func Ln(x float64) float64 {
	f, e := math.Frexp(x)
	if f < math.Sqrt2/2 {
		f, e = 2*f, e-1
	}
	z := (f - 1) / (f + 1)
	square, sum := z*z, 0.0
	for k := 25; k >= 1; k -= 2 {
		sum = float64(sum*square) + 1/float64(k)
	}
	return float64(float64(e)*math.Ln2) + float64(2*z*sum)
}

// Exp returns e to the power of x, from the series for the remainder of x beyond a power
// of 2.
func Exp(x float64) float64 {
	if x < -700 {
		return 0
	}
	k := math.Floor(x/math.Ln2 + 0.5)
	r := x - float64(k*math.Ln2)
	sum := 1.0
	for i := 18; i >= 1; i-- {
		sum = 1 + float64(r*sum)/float64(i)
	}
	return math.Ldexp(sum, int(min(k, 2000)))
}
