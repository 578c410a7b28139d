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
	of    func(*Result) float64 // of each point
	at    []point
	by    Measure // of each second of time
	time  *Setup
}

type point struct {
	x     float64
	setup Setup
}

// over returns the curve of a setup over offered rates.
func over(name string, s Setup, rates []int, of Measure) Series {
	return along(name, rates, s.offered, func(r *Result) float64 { return r.mean(of) })
}

// along returns the curve of a setup for each x.
func along(name string, xs []int, setup func(x int) Setup, of func(*Result) float64) Series {
	c := Series{Name: name, of: of}
	for _, x := range xs {
		c.at = append(c.at, point{float64(x), setup(x)})
	}
	return c
}

// overTime returns the curve of a setup over its seconds.
func overTime(name string, s Setup, by Measure) Series { return Series{Name: name, by: by, time: &s} }

// aside removes a curve from the drawing of the figure.
func (c Series) aside() Series {
	c.Aside = true
	return c
}

// setups returns the setups that a figure needs.
func (f *Figure) setups() (all []Setup) {
	for _, c := range f.Series {
		all = append(all, c.setups()...)
	}
	return all
}

func (c Series) setups() (all []Setup) {
	if c.time != nil {
		return []Setup{*c.time}
	}
	for _, p := range c.at {
		all = append(all, p.setup)
	}
	return all
}

// XY is a point of a curve.
type XY struct{ X, Y float64 }

// draw returns a curve from the results of one seed.
func (c Series) draw(result func(Setup) *Result) (curve []XY) {
	if c.time != nil {
		for i, s := range result(*c.time).Seconds {
			curve = append(curve, XY{float64(i + 1), c.by(s)})
		}
	}
	for _, p := range c.at {
		curve = append(curve, XY{p.x, c.of(result(p.setup))})
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
