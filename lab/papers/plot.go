package papers

import (
	"fmt"
	"html/template"
	"math"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Plot is the diagram of a row: the paper's values next to those measured here.
type Plot struct {
	X, Y string
	// Names contains the labels of x = 0, 1, 2 … if they are not numbers: values are bars
	// then. Log is for bars that differ by orders of magnitude.
	Names  []string
	Log    bool
	Theirs []Line
	Ours   []Line
}

// Line is a curve before anything is measured.
type Line struct {
	Name   string
	Points []At
}

// At is a point: the paper's Y, or samples from a repetition.
type At struct {
	X, Y float64
	of   func(*Measured) []float64
}

// printed returns a curve of the paper from pairs of x and y.
func printed(name string, xy ...float64) Line {
	l := Line{Name: name}
	for i := 0; i+1 < len(xy); i += 2 {
		l.Points = append(l.Points, At{X: xy[i], Y: xy[i+1]})
	}
	return l
}

// curve returns a curve measured here: case is a format for the name of the case at each x.
func curve(name, format string, xs ...int) Line { return curveOf(lows, name, format, xs...) }

func curveOf(some func([]float64) []float64, name, format string, xs ...int) Line {
	l := Line{Name: name}
	for _, x := range xs {
		of := samples(fmt.Sprintf(format, x))
		l.Points = append(l.Points, At{X: float64(x), of: func(m *Measured) []float64 { return some(of(m)) }})
	}
	return l
}

// bars returns a curve over names: the case at each of them.
func bars(name string, cases ...string) Line {
	l := Line{Name: name}
	for i, c := range cases {
		l.Points = append(l.Points, At{X: float64(i), of: samples(c)})
	}
	return l
}

// Curve is a curve of the report.
type Curve struct {
	verdict.Curve
	Theirs bool `json:"theirs,omitempty"`
}

// curves returns what is known of a row's plot.
func (r *Row) curves(runs []*Measured) (all []Curve) {
	for _, l := range r.Plot.Theirs {
		c := Curve{Curve: verdict.Curve{Name: l.Name + " (paper)"}, Theirs: true}
		for _, p := range l.Points {
			c.Points = append(c.Points, verdict.Point{X: p.X, Estimate: verdict.Estimate{Mean: p.Y, Low: p.Y, High: p.Y}})
		}
		all = append(all, c)
	}
	for _, l := range r.Plot.Ours {
		c := Curve{Curve: verdict.Curve{Name: l.Name + " (here)"}}
		for _, p := range l.Points {
			var got []float64
			for _, m := range runs {
				got = append(got, p.of(m)...)
			}
			if len(got) > 0 {
				c.Points = append(c.Points, verdict.Point{X: p.X, Estimate: verdict.Mean(got)})
			}
		}
		if len(c.Points) > 0 {
			all = append(all, c)
		}
	}
	return append(all, r.simulatedCurves(runs)...)
}

// simulatedCurves returns the curves of the simulator, of the first repetition.
func (r *Row) simulatedCurves(runs []*Measured) (all []Curve) {
	if r.Figure == "" || len(runs) == 0 {
		return nil
	}
	for _, c := range runs[0].figure(r.Figure).Curves {
		if !c.Aside {
			c.Name += " (here)"
			all = append(all, Curve{Curve: c})
		}
	}
	return all
}

// draw returns the HTML of a row's chart, or nothing if there is nothing to show.
func draw(p Plot, title string, curves []Curve) (template.HTML, error) {
	if len(curves) == 0 {
		return "", nil
	}
	if len(p.Y) > 10 { // more than fits next to the axis
		title, p.Y = title+" ("+p.Y+")", ""
	}
	c := design.Chart{Title: title, Kind: design.Lines, X: design.Axis{Label: p.X}, Y: design.Axis{Unit: p.Y, Log: p.Log}}
	if p.Names != nil {
		c.Kind, c.Bars = design.Bars, barsOf(p, curves)
	} else {
		c.Height = 240
		for _, curve := range curves {
			s := design.Series{Name: curve.Name}
			for _, at := range curve.Points {
				s.Points = append(s.Points, design.Point{X: at.X, Y: at.Mean})
			}
			if len(s.Points) == 1 { // a dash, as a line of one point is invisible
				one, half := s.Points[0], reach(curves)/100
				s.Points = []design.Point{{X: one.X - half, Y: one.Y}, {X: one.X + half, Y: one.Y}}
			}
			c.Series = append(c.Series, s)
		}
	}
	text, err := design.Figure(c)
	return template.HTML(text), err
}

// reach is the length of the x axis.
func reach(curves []Curve) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		for _, p := range c.Points {
			low, high = min(low, p.X), max(high, p.X)
		}
	}
	return max(high-low, 1)
}

// barsOf returns the bars of each name next to each other.
func barsOf(p Plot, curves []Curve) (all []design.Bar) {
	for i, name := range p.Names {
		for _, c := range curves {
			for _, at := range c.Points {
				if at.X != float64(i) {
					continue
				}
				b := design.Bar{Name: name + ", " + c.Name, Value: at.Mean}
				if at.Low < at.High {
					b.Note = fmt.Sprintf("(%s to %s)", number(at.Low), number(at.High))
				}
				all = append(all, b)
			}
		}
	}
	return all
}
