// Package chart is shared by the lab's charts: colors, marks of events on a timeline, and
// SVG. The packages with the figures decide what is drawn.
package chart

import (
	"bytes"
	"image/color"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var palette = []color.RGBA{
	{0x1f, 0x77, 0xb4, 0xff}, {0xff, 0x7f, 0x0e, 0xff}, {0x2c, 0xa0, 0x2c, 0xff}, {0xd6, 0x27, 0x28, 0xff},
	{0x94, 0x67, 0xbd, 0xff}, {0x8c, 0x56, 0x4b, 0xff}, {0xe3, 0x77, 0xc2, 0xff}, {0x17, 0xbe, 0xcf, 0xff},
}

// Color returns the color of a series, by its index.
func Color(i int) color.Color { return palette[i%len(palette)] }

// Event is what happened at a time after the start.
type Event struct {
	At   time.Duration
	Name string
}

// Mark draws events as vertical lines a little higher than top, the highest value,
// labeled with their names.
func Mark(p *plot.Plot, top float64, events []Event) error {
	if len(events) == 0 {
		return nil
	}
	var labels plotter.XYLabels
	for i, e := range events {
		x := e.At.Seconds()
		line, err := plotter.NewLine(plotter.XYs{{X: x}, {X: x, Y: top * 1.2}})
		if err != nil {
			return err
		}
		line.Color, line.Dashes = color.Gray{0x90}, []vg.Length{vg.Points(3), vg.Points(3)}
		p.Add(line)
		labels.XYs = append(labels.XYs, plotter.XY{X: x, Y: top * (1.16 - 0.06*float64(i%3))})
		labels.Labels = append(labels.Labels, " "+e.Name)
	}
	names, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	p.Add(names)
	return nil
}

// SVG draws a plot of this size in centimeters.
func SVG(p *plot.Plot, width, height float64) ([]byte, error) {
	canvas := vgsvg.New(vg.Length(width)*vg.Centimeter, vg.Length(height)*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}
