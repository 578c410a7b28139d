package cni

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/chart"
)

// drawn is a line of a picture: a pair of endpoints, a kind of network, and the paper's
// figure.
type drawn struct{ pair, kind, paper string }

// figure5 and figure6 list the lines of the paper's figures 5 and 6. Flannel's overlays
// carry only traffic between pods.
var (
	figure5 = []drawn{
		{toServer, Host, "about 940"}, {toServer, Macvlan, "938"}, {toServer, HostDevice, "940"},
		{toServer, HostGW, "none"}, {betweenPods, VXLAN, "none"}, {betweenPods, TunUDP, "none"},
	}
	figure6 = []drawn{{betweenPods, Macvlan, "9700"}, {betweenPods, HostDevice, "9880"}, {betweenPods, Host, "none"}}
)

// drawThroughput draws the paper's figures at each measured rate, and the CPU time of
// each kind.
func (r *Result) drawThroughput(all map[setting]measured) (err error) {
	for s, got := range all {
		if !s.offloads {
			continue
		}
		for n, lines := range map[int][]drawn{5: figure5, 6: figure6} {
			name := fmt.Sprintf("cni-figure%d-%s.svg", n, s.rate)
			if r.files[name], err = drawOverTime(n, s, got, lines); err != nil {
				return err
			}
		}
	}
	r.files["cni-cpu.svg"], err = drawCPU(all)
	return err
}

// drawOverTime draws the throughput in each interval of sampleEvery, with the rounds one
// after the other.
func drawOverTime(figure int, s setting, all measured, lines []drawn) ([]byte, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Throughput between the sites, %s (Fig. %d)", s, figure)
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "seconds, rounds joined", "Mbit/s", 0
	p.Legend.Padding, p.Legend.Left, p.Legend.YOffs = vg.Points(4), true, vg.Points(6)
	for i, d := range lines {
		got := all[[2]string{d.pair, d.kind}]
		if len(got) == 0 {
			continue
		}
		var xys plotter.XYs
		for _, one := range got {
			for _, mbits := range one.samples {
				xys = append(xys, plotter.XY{X: float64(len(xys)) * sampleEvery.Seconds(), Y: mbits})
				p.Y.Max = max(p.Y.Max, 1.05*mbits)
			}
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = chart.Color(i), vg.Points(1.6)
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s, %s: %.0f (paper: %s)", d.pair, d.kind, bench.SpreadOf(got.rates()).Median, d.paper), line)
	}
	return chart.SVG(p, 26, 12)
}

// drawCPU draws the CPU time between pods: one group of bars per setting, one bar per
// kind.
func drawCPU(all map[setting]measured) ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.Y.Min = "Processor time from pod to pod", "ms for each Gbit, whole machine", 0
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(4)
	settings := slices.SortedFunc(maps.Keys(all), func(a, b setting) int { return strings.Compare(a.String(), b.String()) })
	var names []string
	for _, s := range settings {
		names = append(names, s.String())
	}
	width := vg.Points(14)
	for i, kind := range Kinds {
		var heights plotter.Values
		for _, s := range settings {
			heights = append(heights, bench.SpreadOf(all[s][[2]string{betweenPods, kind}].cpu()).Median)
		}
		bars, err := plotter.NewBarChart(heights, width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.Offset, bars.LineStyle.Width = chart.Color(i), width*vg.Length(2*i-len(Kinds)+1)/2, 0
		p.Add(bars)
		p.Legend.Add(kind, bars)
	}
	p.NominalX(names...)
	return chart.SVG(p, 26, 12)
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page returns the whole report as HTML, with its pictures embedded.
func (r *Result) page() ([]byte, error) {
	type picture struct {
		Name string
		SVG  template.HTML
	}
	var pictures []picture
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		_, svg, _ := bytes.Cut(r.files[name], []byte("<svg"))
		pictures = append(pictures, picture{name, template.HTML("<svg" + string(svg))}) //nolint:gosec // drawn by this program
	}
	var table, out bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		return nil, err
	}
	err := pageTemplate.Execute(&out, map[string]any{"Report": r.Report, "Table": table.String(), "Pictures": pictures})
	return out.Bytes(), err
}

// drawRequests draws Fig. 11 or 12: requests per second by the number of backends, one
// line per network, dashed without RPS.
func drawRequests(figure int, maker string, points []point, rates map[point][]float64) ([]byte, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Through a balancer of %s in flannel's networks (Fig. %d)", maker, figure)
	p.X.Label.Text, p.Y.Label.Text, p.X.Min, p.Y.Min = "servers", "requests/s", 0, 0
	p.Legend.Top, p.Legend.Padding = true, vg.Points(4)
	lines := map[string]plotter.XYs{}
	var names []string
	for _, at := range points {
		p.Y.Max = max(p.Y.Max, 1.1*bench.SpreadOf(rates[at]).Median) // the same for both makers
		if at.maker != maker {
			continue
		}
		if lines[at.line()] == nil {
			names = append(names, at.line())
		}
		y := bench.SpreadOf(rates[at]).Median
		lines[at.line()] = append(lines[at.line()], plotter.XY{X: float64(at.of), Y: y})
		p.X.Max = max(p.X.Max, 1.6*float64(at.of))
	}
	for i, name := range names {
		line, dots, err := plotter.NewLinePoints(lines[name])
		if err != nil {
			return nil, err
		}
		line.Color, dots.Color, line.Width = chart.Color(i/2), chart.Color(i/2), vg.Points(1.6)
		if i%2 == 0 {
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
	}
	return chart.SVG(p, 20, 12)
}
