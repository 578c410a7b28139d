package lvs

import (
	"fmt"

	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Figure is one of the paper's figures.
type Figure struct {
	Name    string // for example fig8
	Title   string
	X, Y    string // labels of the axes
	Series  []Series
	Claims  []Claim
	Remarks []string // on what was run
}

// Series is a curve: a measure by offered rate, from several setups, or over time, from
// one setup.
type Series struct {
	Name string
	// Aside is set if claims use the curve, but the figure does not show it.
	Aside bool
	of    Measure
	at    []point
	time  *Setup
}

type point struct {
	x     float64
	setup Setup
}

// over returns the curve of a setup over offered rates.
func over(name string, s Setup, rates []int, of Measure) Series {
	c := Series{Name: name, of: of}
	for _, r := range rates {
		c.at = append(c.at, point{float64(r), s.offered(r)})
	}
	return c
}

// overTime returns the curve of a setup over its seconds.
func overTime(name string, s Setup, of Measure) Series { return Series{Name: name, of: of, time: &s} }

// aside removes a curve from the drawing of the figure.
func (c Series) aside() Series {
	c.Aside = true
	return c
}

// setups returns the setups that a figure needs.
func (f *Figure) setups() (all []Setup) {
	for _, c := range f.Series {
		if c.time != nil {
			all = append(all, *c.time)
		}
		for _, p := range c.at {
			all = append(all, p.setup)
		}
	}
	return all
}

// XY is a point of a curve.
type XY struct{ X, Y float64 }

// draw returns a curve from the results of one seed.
func (c Series) draw(result func(Setup) *Result) (curve []XY) {
	if c.time != nil {
		for i, s := range result(*c.time).Seconds {
			curve = append(curve, XY{float64(i + 1), c.of(s)})
		}
	}
	for _, p := range c.at {
		curve = append(curve, XY{p.x, result(p.setup).mean(c.of)})
	}
	return curve
}

// Curves contains a figure's curves for one seed, in the order of its series.
type Curves [][]XY

// at returns a curve's value at x, which must exist.
func (c Curves) at(series int, x float64) float64 {
	for _, p := range c[series] {
		if p.X == x {
			return p.Y
		}
	}
	panic(fmt.Sprintf("curve %d has no point at %g", series, x))
}

// where returns the values of a curve's points with x from low to high.
func (c Curves) where(series int, low, high float64) (ys []float64) {
	for _, p := range c[series] {
		if p.X >= low && p.X <= high {
			ys = append(ys, p.Y)
		}
	}
	return ys
}

// Claim is a statement of the paper about a figure, or a result of ns-2.
type Claim = verdict.Claim[Curves]
