package report

import (
	"bytes"
	"errors"
	imagecolor "image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/fairlead/fairlead/lab/sim/verdict"
)

const width, height = 18, 9 // centimeters

var palette = []imagecolor.RGBA{
	{0x1f, 0x77, 0xb4, 0xff}, {0xff, 0x7f, 0x0e, 0xff}, {0x2c, 0xa0, 0x2c, 0xff}, {0xd6, 0x27, 0x28, 0xff},
	{0x94, 0x67, 0xbd, 0xff}, {0x8c, 0x56, 0x4b, 0xff}, {0xe3, 0x77, 0xc2, 0xff}, {0x17, 0xbe, 0xcf, 0xff},
}

// color returns the color of a series, by its index.
func color(i int) imagecolor.Color { return palette[i%len(palette)] }

// picture is a picture to draw.
type picture struct {
	name, title, x, y string
	logX, logY        bool
	curves            []verdict.Curve
	seeds             int
}

// plot draws like the paper: each curve is a line with marks, with confidence intervals
// if there are several seeds.
func (p *picture) plot() (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text, drawn.X.Label.Text, drawn.Y.Label.Text = p.title, p.x, p.y
	if !p.logY {
		drawn.Y.Min = 0
	}
	if p.logX {
		drawn.X.Scale, drawn.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if p.logY {
		drawn.Y.Scale, drawn.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	top := 0.0
	for i, c := range p.curves {
		points := p.intervals(c)
		if c.Aside || points.Len() == 0 {
			continue
		}
		for _, at := range points.XYs {
			top = max(top, at.Y)
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, marks.Color, marks.Shape = color(i), color(i), shape(i)
		drawn.Add(line, marks)
		drawn.Legend.Add(c.Name, line, marks)
		if p.seeds > 1 {
			bars, err := plotter.NewYErrorBars(points)
			if err != nil {
				return nil, err
			}
			bars.Color = color(i)
			drawn.Add(bars)
		}
	}
	p.bounds(drawn, top)
	drawn.Legend.Top, drawn.Legend.Left, drawn.Legend.Padding, drawn.Legend.TextStyle.Font.Size = true, true, vg.Points(3), vg.Points(9)
	return drawn, nil
}

// bounds adds some room at the top of the y axis, and gives logarithmic axes a range even
// for a single point.
func (p *picture) bounds(drawn *plot.Plot, top float64) {
	if top == 0 {
		top = 1
	}
	if p.logX && !(drawn.X.Min < drawn.X.Max) {
		drawn.X.Min, drawn.X.Max = min(drawn.X.Min, 10)/2, max(drawn.X.Max, 10)*2
	}
	if p.logY {
		drawn.Y.Min, drawn.Y.Max = min(drawn.Y.Min, top/10), top*2
		return
	}
	drawn.Y.Max = max(drawn.Y.Max, top*1.05)
}

// intervals returns the points of a curve that can be drawn.
func (p *picture) intervals(c verdict.Curve) (points intervals) {
	for _, at := range c.Points {
		low := at.Low
		if p.logX && at.X <= 0 || p.logY && at.Mean <= 0 {
			continue
		}
		if p.logY && low <= 0 {
			low = at.Mean // no bar down to minus infinity
		}
		points.XYs = append(points.XYs, plotter.XY{X: at.X, Y: at.Mean})
		points.YErrors = append(points.YErrors, struct{ Low, High float64 }{at.Mean - low, at.High - at.Mean})
	}
	return points
}

// intervals contains points with their confidence intervals.
type intervals struct {
	plotter.XYs
	plotter.YErrors
}

func shape(i int) draw.GlyphDrawer {
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}}
	return shapes[i%len(shapes)]
}

// draw returns a picture as SVG and as PNG.
func (p *picture) draw() (svg, png []byte, err error) {
	drawn, err := p.plot()
	if err != nil {
		return nil, nil, err
	}
	const w, h = width * vg.Centimeter, height * vg.Centimeter
	vectors, pixels := vgsvg.New(w, h), vgimg.New(w, h)
	drawn.Draw(draw.New(vectors))
	drawn.Draw(draw.New(pixels))
	var out, image bytes.Buffer
	_, err = vectors.WriteTo(&out)
	_, err2 := vgimg.PngCanvas{Canvas: pixels}.WriteTo(&image)
	return out.Bytes(), image.Bytes(), errors.Join(err, err2)
}
