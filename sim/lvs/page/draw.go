package page

import (
	"bytes"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/fairlead/fairlead/lab/chart"
	"github.com/fairlead/fairlead/sim/lvs"
)

const width, height = 18, 9 // centimetres

// plotOf draws a figure as the paper does: a line with marks for
// each curve, and the confidence intervals where there are several seeds.
func plotOf(o *lvs.Outcome) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text, p.Y.Min = o.Title, o.X, o.Y, 0
	top := 1.0
	for i, c := range o.Curves {
		if c.Aside {
			continue
		}
		var points intervals
		for _, at := range c.Points {
			points.XYs = append(points.XYs, plotter.XY{X: at.X, Y: at.Mean})
			points.YErrors = append(points.YErrors, struct{ Low, High float64 }{at.Mean - at.Low, at.High - at.Mean})
			top = max(top, at.High)
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, marks.Color, marks.Shape = chart.Color(i), chart.Color(i), shape(i)
		p.Add(line, marks)
		p.Legend.Add(c.Name, line, marks)
		if o.Seeds > 1 {
			bars, err := plotter.NewYErrorBars(points)
			if err != nil {
				return nil, err
			}
			bars.Color = chart.Color(i)
			p.Add(bars)
		}
	}
	p.Y.Max = top * 1.05
	p.Legend.Top, p.Legend.Left, p.Legend.Padding, p.Legend.TextStyle.Font.Size = true, true, vg.Points(3), vg.Points(9)
	return p, nil
}

// intervals are points with their confidence intervals.
type intervals struct {
	plotter.XYs
	plotter.YErrors
}

func shape(i int) draw.GlyphDrawer {
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}}
	return shapes[i%len(shapes)]
}

// pictures gives a figure as SVG and as PNG.
func pictures(o *lvs.Outcome) (svg, png []byte, err error) {
	p, err := plotOf(o)
	if err != nil {
		return nil, nil, err
	}
	if svg, err = chart.SVG(p, width, height); err != nil {
		return nil, nil, err
	}
	canvas := vgimg.New(width*vg.Centimeter, height*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var out bytes.Buffer
	_, err = vgimg.PngCanvas{Canvas: canvas}.WriteTo(&out)
	return svg, out.Bytes(), err
}
