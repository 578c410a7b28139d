package survival

import (
	"fmt"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/fairlead/fairlead/lab/chart"
)

// WritePlot draws the broken connections over time, one line per run, to
// DIR/survival.svg, and returns that path.
func WritePlot(dir string, o Options, results []*Result) (path string, err error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Of %d open connections, broken until then", o.Connections)
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "seconds", "connections", 0
	top := 1.0
	var marked *Result
	for i, r := range results {
		line, err := plotter.NewLine(r.steps())
		if err != nil {
			return "", err
		}
		line.Color, line.Width, line.StepStyle = chart.Color(i), vg.Points(1.6), plotter.PostStep
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s: %d", r.variant.name, len(r.Breaks)), line)
		top = max(top, float64(len(r.Breaks)))
		p.X.Max = max(p.X.Max, r.Length.Seconds())
		if marked == nil || len(r.Events) > len(marked.Events) {
			marked = r
		}
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(4)
	p.Y.Max = top * 1.25
	if err := chart.Mark(p, top, marked.events()); err != nil {
		return "", err
	}
	svg, err := chart.SVG(p, 26, 12)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "survival.svg")
	return path, os.WriteFile(path, svg, 0o644)
}

// steps returns the number of broken connections over time.
func (r *Result) steps() plotter.XYs {
	xys := plotter.XYs{{}}
	for i, b := range r.Breaks {
		xys = append(xys, plotter.XY{X: b.At.Seconds(), Y: float64(i + 1)})
	}
	return append(xys, plotter.XY{X: r.Length.Seconds(), Y: float64(len(r.Breaks))})
}

// events returns the events of the run as marks of the chart. They come at nearly the
// same times in the other runs.
func (r *Result) events() (events []chart.Event) {
	for _, e := range r.Events {
		events = append(events, chart.Event{At: e.At, Name: e.Name})
	}
	return events
}
