package draw

import (
	"math"
	"testing"
)

// These values must never change, because results are quoted by seed.
func TestReproducible(t *testing.T) {
	s := NewStream(1, 2)
	for _, c := range []struct {
		work Work
		want uint64
	}{{Exponential(), 0x3fd01969eafedeb0}, {Lognormal(2), 0x3f83949fc7ad87fd}, {Pareto(1.5, 1e4), 0x3fed8072a86159f8}} {
		if got := math.Float64bits(c.work.Draw(s)); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.work.Name, got, c.want)
		}
	}
}

func TestMoments(t *testing.T) {
	const n = 1_000_000
	for _, w := range []Work{Constant(), Exponential(), Lognormal(1), Pareto(2.5, 1e3), Pareto(1.5, 1e2)} {
		s := NewStream(7, 1)
		sum, squares := 0.0, 0.0
		for range n {
			x := w.Draw(s)
			sum, squares = sum+x, squares+x*x
		}
		if mean, second := sum/n, squares/n; math.Abs(mean-1) > 0.01 || math.Abs(second/w.Second-1) > 0.04 {
			t.Errorf("%s: mean %.4f, want 1; second moment %.4f, want %.4f", w.Name, mean, second, w.Second)
		}
	}
}

// Streams of adjacent seeds and uses are uncorrelated.
func TestStreamsDiffer(t *testing.T) {
	const n = 10000
	for _, other := range []Stream{NewStream(1, 1), NewStream(2, 0)} {
		one, both := NewStream(1, 0), 0.0
		for range n {
			both += (one.Float() - 0.5) * (other.Float() - 0.5) * 12
		}
		if c := both / n; math.Abs(c) > 0.04 {
			t.Errorf("correlation %.3f", c)
		}
	}
}

func TestBelow(t *testing.T) {
	s, count := NewStream(3, 0), [5]int{}
	for range 50000 {
		count[s.Below(5)]++
	}
	for i, n := range count {
		if n < 9600 || n > 10400 {
			t.Errorf("%d came %d times, want about 10000", i, n)
		}
	}
}
