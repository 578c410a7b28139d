package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/fairlead/fairlead/lab/chart"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Parse(reportHTML))

// WriteReport writes the run as a self-contained HTML file.
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

// plotRates draws a line for each name over time, with the events as vertical lines.
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
		line.Color, line.Width = chart.Color(i), vg.Points(1.2)
		p.Add(line)
		p.Legend.Add(name, line)
	}
	p.Legend.Top, p.Legend.Padding, p.Legend.TextStyle.Font.Size = true, vg.Points(4), vg.Points(9)
	if err := chart.Mark(p, top, r.events()); err != nil {
		return "", err
	}
	if n := len(r.samples); n > 0 {
		p.X.Min, p.X.Max = 0, r.samples[n-1].At.Seconds()*1.15 // space for the legend
	}
	p.Y.Max = top * 1.25
	return svg(p, 22, 8)
}

func (r *Result) events() (events []chart.Event) {
	for _, e := range r.Events {
		events = append(events, chart.Event{At: time.Duration(e.StartedMs) * time.Millisecond, Name: e.Name})
	}
	return events
}

// plotShares draws each backend's share during the steady phase, compared with an even
// share.
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
	bar, err := plotter.NewBarChart(values, vg.Points(28))
	if err != nil {
		return "", err
	}
	bar.Color = chart.Color(0)
	p.Add(bar)
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
	text, err := chart.SVG(p, width, height)
	if err != nil {
		return "", err
	}
	// What precedes the element (an XML declaration) must not be in HTML.
	if i := bytes.Index(text, []byte("<svg")); i > 0 {
		text = text[i:]
	}
	return template.HTML(text), nil
}
