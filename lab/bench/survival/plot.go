package survival

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/design"
)

// draw draws the broken connections over time, one line per run. The events come at nearly
// the same times in all runs.
func draw(o Options, results []*Result) design.Chart {
	c := design.Chart{
		Title: fmt.Sprintf("Broken connections, of %d open ones", o.Connections), Kind: design.Lines,
		X: design.Axis{Unit: "s"}, Y: design.Axis{Unit: "broken"},
	}
	var marked *Result
	for _, r := range results {
		c.Series = append(c.Series, design.Series{Name: fmt.Sprintf("%s: %d", r.variant.name, len(r.Breaks)), Points: r.steps()})
		if marked == nil || len(r.Events) > len(marked.Events) {
			marked = r
		}
	}
	for _, e := range marked.Events {
		c.Events = append(c.Events, design.Event{At: e.At.Seconds(), Name: e.Name})
	}
	return c
}

// steps returns the number of broken connections over time.
func (r *Result) steps() []design.Point {
	all := []design.Point{{}}
	for i, b := range r.Breaks {
		x := b.At.Seconds()
		all = append(all, design.Point{X: x, Y: float64(i)}, design.Point{X: x, Y: float64(i + 1)})
	}
	return append(all, design.Point{X: r.Length.Seconds(), Y: float64(len(r.Breaks))})
}
