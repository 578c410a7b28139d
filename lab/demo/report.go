package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
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

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Parse(reportHTML))

// palette gives a series its colour, by its place in the sorted names.
var palette = []color.RGBA{
	{0x1f, 0x77, 0xb4, 0xff}, {0xff, 0x7f, 0x0e, 0xff}, {0x2c, 0xa0, 0x2c, 0xff}, {0xd6, 0x27, 0x28, 0xff},
	{0x94, 0x67, 0xbd, 0xff}, {0x8c, 0x56, 0x4b, 0xff}, {0xe3, 0x77, 0xc2, 0xff}, {0x17, 0xbe, 0xcf, 0xff},
}

// WriteReport writes the run as one HTML file that needs nothing else.
func (r *Result) WriteReport(file, topology string, tables []string) error {
	page := struct {
		*Result
		Topology                                 string
		Tables                                   []string
		Servers, Balancers, Shares, Convergences template.HTML
	}{Result: r, Topology: topology, Tables: tables}
	for _, p := range []struct {
		into *template.HTML
		draw func() (template.HTML, error)
	}{
		{&page.Servers, func() (template.HTML, error) {
			return r.plotRates("Requests a second, by server", func(s Sample) map[string]float64 { return s.PerServer })
		}},
		{&page.Balancers, func() (template.HTML, error) {
			return r.plotRates("Packets a second, by balancer", func(s Sample) map[string]float64 { return s.PerBalancer })
		}},
		{&page.Shares, r.plotShares},
		{&page.Convergences, r.plotConvergence},
	} {
		svg, err := p.draw()
		if err != nil {
			return fmt.Errorf("drawing the report: %w", err)
		}
		*p.into = svg
	}
	var html bytes.Buffer
	if err := reportTemplate.Execute(&html, page); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, html.Bytes(), 0o644)
}

// plotRates draws one line a name over time, with the events as upright lines.
func (r *Result) plotRates(title string, of func(Sample) map[string]float64) (template.HTML, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Min = title, "seconds", 0
	series, top := map[string]plotter.XYs{}, 1.0
	for _, s := range r.samples {
		for name, rate := range of(s) {
			series[name] = append(series[name], plotter.XY{X: s.At.Seconds(), Y: rate})
			top = max(top, rate)
		}
	}
	for i, name := range sortedKeys(series) {
		line, err := plotter.NewLine(series[name])
		if err != nil {
			return "", err
		}
		line.Color, line.Width = palette[i%len(palette)], vg.Points(1.2)
		p.Add(line)
		p.Legend.Add(name, line)
	}
	p.Legend.Top, p.Legend.Padding, p.Legend.TextStyle.Font.Size = true, vg.Points(4), vg.Points(9)
	if err := r.markEvents(p, top); err != nil {
		return "", err
	}
	if n := len(r.samples); n > 0 {
		p.X.Min, p.X.Max = 0, r.samples[n-1].At.Seconds()*1.15 // room for the legend
	}
	p.Y.Max = top * 1.1
	return svg(p, 22, 8)
}

func (r *Result) markEvents(p *plot.Plot, top float64) error {
	var labels plotter.XYLabels
	for i, e := range r.Events {
		x := (time.Duration(e.StartedMs) * time.Millisecond).Seconds()
		line, err := plotter.NewLine(plotter.XYs{{X: x}, {X: x, Y: top * 1.1}})
		if err != nil {
			return err
		}
		line.Color, line.Dashes = color.Gray{0x80}, []vg.Length{vg.Points(3), vg.Points(3)}
		p.Add(line)
		labels.XYs = append(labels.XYs, plotter.XY{X: x, Y: top * (1.08 - 0.06*float64(i%2))})
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

// plotShares draws each server's share while nothing changed, beside even.
func (r *Result) plotShares() (template.HTML, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.Y.Min = "Share of the requests while nothing changed", "per cent", 0
	names := sortedKeys(r.Shares)
	var values plotter.Values
	for _, name := range names {
		values = append(values, 100*r.Shares[name])
	}
	return bars(p, names, values)
}

// plotConvergence draws how long each event took to converge.
func (r *Result) plotConvergence() (template.HTML, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.Y.Min = "Time until converged", "milliseconds", 0
	var names []string
	var values plotter.Values
	for _, e := range r.Events {
		names = append(names, e.Name)
		values = append(values, max(e.ConvergedMs, 0))
	}
	return bars(p, names, values)
}

func bars(p *plot.Plot, names []string, values plotter.Values) (template.HTML, error) {
	if len(values) == 0 {
		return "", nil
	}
	chart, err := plotter.NewBarChart(values, vg.Points(28))
	if err != nil {
		return "", err
	}
	chart.Color = palette[0]
	p.Add(chart)
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4 // whole bars and their labels
	p.Y.Max *= 1.1
	var labels plotter.XYLabels
	for i, v := range values {
		labels.XYs = append(labels.XYs, plotter.XY{X: float64(i), Y: v})
		labels.Labels = append(labels.Labels, fmt.Sprintf("%.1f", v))
	}
	l, err := plotter.NewLabels(labels)
	if err != nil {
		return "", err
	}
	p.Add(l)
	return svg(p, 22, 6)
}

func svg(p *plot.Plot, width, height float64) (template.HTML, error) {
	canvas := vgsvg.New(vg.Length(width)*vg.Centimeter, vg.Length(height)*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return "", err
	}
	// What stands before the element (an XML declaration) has no place in HTML.
	text := out.Bytes()
	if i := bytes.Index(text, []byte("<svg")); i > 0 {
		text = text[i:]
	}
	return template.HTML(text), nil
}
