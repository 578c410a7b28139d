package sim

import (
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
	"math"
	"testing"
)

func TestLogarithmAndPowerAreRight(t *testing.T) {
	s := stochastic.NewStream(5)
	for range 20000 {
		x := math.Ldexp(s.Float()+1e-9, s.Below(200)-100)
		if got, want := stochastic.Ln(x), math.Log(x); math.Abs(got-want) > 4e-16*max(1, math.Abs(want)) {
			t.Fatalf("Ln(%g) is %.17g, want %.17g", x, got, want)
		}
		x = 100 * (s.Float() - 0.5)
		if got, want := stochastic.Exp(x), math.Exp(x); math.Abs(got/want-1) > 1e-14 {
			t.Fatalf("Exp(%g) is %.17g, want %.17g", x, got, want)
		}
	}
	if stochastic.Exp(-1000) != 0 || stochastic.Ln(1) != 0 || stochastic.Exp(0) != 1 {
		t.Error("the ends are off")
	}
}

// TestDrawsAreOfTheirDistributions checks mean, median and bounds of many draws.
func TestDrawsAreOfTheirDistributions(t *testing.T) {
	// Pareto with shape a from l to h: the mean is a/(a-1) * l^a * (l^(1-a) - h^(1-a)) /
	// (1 - (l/h)^a). The median is the point with half of the unbounded distribution's
	// probability below h.
	const shape, low, high = 1.5, 1.0, 1000.0
	cut := 1 - math.Pow(low/high, shape)
	for _, c := range []struct {
		name         string
		draw         stochastic.Draw
		mean, median float64
		low, high    float64
	}{
		{"always", stochastic.Always(3), 3, 3, 3, 3},
		{"exponential", stochastic.Exponential(2), 2, 2 * math.Ln2, 0, math.Inf(1)},
		{"lognormal", stochastic.Lognormal(5, 0.5), 5 * math.Exp(0.125), 5, 0, math.Inf(1)},
		{"pareto", stochastic.Pareto(shape, low, high), shape / (shape - 1) * (1 - math.Pow(high, 1-shape)) / cut, math.Pow(1-cut/2, -1/shape), low, high},
	} {
		s, sum, below := stochastic.StreamOf(1, 2), 0.0, 0.0
		const n = 400000
		for range n {
			x := c.draw(s)
			if x < c.low || x > c.high {
				t.Fatalf("%s: %g is not from %g to %g", c.name, x, c.low, c.high)
			}
			sum += x
			if x <= c.median {
				below++
			}
		}
		if mean := sum / n; math.Abs(mean/c.mean-1) > 0.03 {
			t.Errorf("%s: mean is %g, want %g", c.name, mean, c.mean)
		}
		if part := below / n; c.low != c.high && math.Abs(part-0.5) > 0.005 {
			t.Errorf("%s: %.4f are below the median", c.name, part)
		}
	}
}

// TestStreamsAreApart checks that adjacent streams are uncorrelated.
func TestStreamsAreApart(t *testing.T) {
	a, b := stochastic.StreamOf(1, 1), stochastic.StreamOf(1, 2)
	sum, n := 0.0, 100000
	for range n {
		sum += (a.Float() - 0.5) * (b.Float() - 0.5) * 12
	}
	if r := sum / float64(n); math.Abs(r) > 0.015 {
		t.Errorf("correlation is %.4f", r)
	}
}

// TestLoadsComeWhenTheyShould checks that the requests of a trace have exact times, flows
// and sizes.
func TestLoadsComeWhenTheyShould(t *testing.T) {
	n := New[Nanoseconds](Config{Bin: 0.1})
	web := n.Server(Server{Name: "web", Speed: 1000})
	var took []float64
	c := n.Client(Client{Name: "c", To: web, Start: 0.05, Load: traffic.Replay([]traffic.Record{{At: 0.1, Size: 10, Flow: 3}, {At: 0.1, Size: 20, Flow: 0}, {At: 0.34, Size: 0, Flow: 1}}),
		Done: func(s float64) { took = append(took, s) }})
	n.Client(Client{Name: "never", To: web, Load: traffic.Replay(nil)})
	n.Link(c, web, 1e15, 0, 0)
	n.Link(c+1, web, 1e15, 0, 0)
	if err := n.Run(1); err != nil {
		t.Fatal(err)
	}
	var sent []uint64
	for _, b := range n.Bins(c)[:5] {
		sent = append(sent, b.Sent)
	}
	if got := [5]uint64(sent); got != [5]uint64{0, 2, 0, 1, 0} {
		t.Errorf("sent %v", got)
	}
	if len(took) != 3 || took[0] != 0.01 || took[1] != 0.03 || took[2] != 0 {
		t.Errorf("took %v, want 10 bytes at 1,000 a second, then 20 more, then none", took)
	}
	if len(n.nodes[c].flows) != 4 || n.At(c+1).Sent != 0 {
		t.Errorf("%d flows, want those to number 3", len(n.nodes[c].flows))
	}
}
