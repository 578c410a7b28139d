package draw

import "fmt"

// Work is how much there is to do for a request: a distribution with mean 1.
type Work interface {
	Draw(Stream) float64
	// Second is its second moment, the mean of the squares.
	Second() float64
	String() string
}

// Constant is always the same.
type Constant struct{}

// Draw implements Work.
func (Constant) Draw(Stream) float64 { return 1 }

// Second implements Work.
func (Constant) Second() float64 { return 1 }

func (Constant) String() string { return "constant" }

// Exponential has no memory.
type Exponential struct{}

// Draw implements Work.
func (Exponential) Draw(s Stream) float64 { return s.Exp() }

// Second implements Work.
func (Exponential) Second() float64 { return 2 }

func (Exponential) String() string { return "exponential" }

// Lognormal is what e to the power of a normal number is.
type Lognormal struct{ Sigma float64 }

// Draw implements Work.
func (l Lognormal) Draw(s Stream) float64 {
	return Exp(float64(l.Sigma*s.normal()) - float64(float64(l.Sigma*l.Sigma)/2))
}

// Second implements Work.
func (l Lognormal) Second() float64 { return Exp(l.Sigma * l.Sigma) }

func (l Lognormal) String() string { return fmt.Sprintf("lognormal (σ %g)", l.Sigma) }

// Pareto is bounded: from Least to Ratio times as much, few of which have most of
// all work. NewPareto makes one.
type Pareto struct {
	Alpha, Ratio, Least float64
	within              float64 // how likely an unbounded one is within the bounds
}

// NewPareto gives the one with an exponent, above 1 and not 2, whose mean is 1.
func NewPareto(alpha, ratio float64) Pareto {
	p := Pareto{Alpha: alpha, Ratio: ratio, Least: 1, within: 1 - Power(ratio, -alpha)}
	p.Least = 1 / p.moment(1)
	return p
}

// moment is the mean of the nth powers.
func (p Pareto) moment(n float64) float64 {
	return Power(p.Least, n) * p.Alpha / (p.Alpha - n) * (1 - Power(p.Ratio, n-p.Alpha)) / p.within
}

// Draw implements Work.
func (p Pareto) Draw(s Stream) float64 {
	return p.Least * Power(1-float64(s.Float()*p.within), -1/p.Alpha)
}

// Second implements Work.
func (p Pareto) Second() float64 { return p.moment(2) }

func (p Pareto) String() string { return fmt.Sprintf("Pareto (α %g, 1 to %g)", p.Alpha, p.Ratio) }
