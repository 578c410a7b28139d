package survival

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// palette gives a run its colour, by its place.
var palette = []color.RGBA{
	{0x2c, 0xa0, 0x2c, 0xff}, {0x1f, 0x77, 0xb4, 0xff}, {0xd6, 0x27, 0x28, 0xff}, {0xff, 0x7f, 0x0e, 0xff},
}

// WritePlot draws the connections broken over time, one line a run, to
// DIR/survival.svg, and gives that path.
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
		line.Color, line.Width, line.StepStyle = palette[i%len(palette)], vg.Points(1.6), plotter.PostStep
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
	if err := markEvents(p, marked, top); err != nil {
		return "", err
	}
	canvas := vgsvg.New(26*vg.Centimeter, 12*vg.Centimeter)
	p.Draw(draw.New(canvas))
	path = filepath.Join(dir, "survival.svg")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	_, err = canvas.WriteTo(file)
	return path, err
}

// steps are how many connections had broken by then.
func (r *Result) steps() plotter.XYs {
	xys := plotter.XYs{{}}
	for i, b := range r.Breaks {
		xys = append(xys, plotter.XY{X: b.At.Seconds(), Y: float64(i + 1)})
	}
	return append(xys, plotter.XY{X: r.Length.Seconds(), Y: float64(len(r.Breaks))})
}

// markEvents draws when the longest run's events were; those of the others
// come at nearly the same times.
func markEvents(p *plot.Plot, r *Result, top float64) error {
	var labels plotter.XYLabels
	for i, e := range r.Events {
		x := e.At.Round(time.Millisecond).Seconds()
		line, err := plotter.NewLine(plotter.XYs{{X: x}, {X: x, Y: top * 1.2}})
		if err != nil {
			return err
		}
		line.Color, line.Dashes = color.Gray{0xa0}, []vg.Length{vg.Points(3), vg.Points(3)}
		p.Add(line)
		labels.XYs = append(labels.XYs, plotter.XY{X: x, Y: top * (1.16 - 0.06*float64(i%3))})
		labels.Labels = append(labels.Labels, " "+e.Name)
	}
	if len(labels.Labels) == 0 {
		return nil
	}
	l, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	p.Add(l)
	return nil
}
