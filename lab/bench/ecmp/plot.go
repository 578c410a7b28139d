package ecmp

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/chart"
)

// drawDelays draws Fig. 13 (c): the distribution of the delays of starts and stops, one
// line each per router.
func drawDelays(all []*changing) ([]byte, error) {
	p := plot.New()
	p.Title.Text = "Until the router's kernel has the balancers that run"
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "milliseconds", "share, %", 0
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Padding = true, vg.Points(4)
	for i, c := range all {
		for _, d := range []struct {
			name   string
			delays *delays
			dashes []vg.Length
		}{{"start", &c.starts, nil}, {"stop", &c.stops, []vg.Length{vg.Points(5), vg.Points(3)}}} {
			if d.delays.Count() == 0 {
				continue
			}
			line, err := plotter.NewLine(d.delays.steps())
			if err != nil {
				return nil, err
			}
			line.Color, line.Width, line.Dashes, line.StepStyle = chart.Color(i), vg.Points(1.6), d.dashes, plotter.PostStep
			p.Add(line)
			p.Legend.Add(fmt.Sprintf("%s, %s: %d", c.router, d.name, d.delays.Count()), line)
		}
	}
	return chart.SVG(p, 26, 12)
}

// barsAnOctave is the number of bars per doubling.
const barsAnOctave = 4

// steps returns the shares in bars of exponentially growing delays, in milliseconds.
func (d *delays) steps() plotter.XYs {
	bars := map[int]uint64{}
	bar := func(ms float64) int { return int(math.Floor(barsAnOctave * math.Log2(ms))) }
	first, last := math.MaxInt, math.MinInt
	for upper, n := range d.Buckets() {
		b := bar(ms(max(upper, time.Microsecond)))
		bars[b] += n
		first, last = min(first, b), max(last, b)
	}
	at := func(b int) float64 { return math.Pow(2, float64(b)/barsAnOctave) }
	xys := plotter.XYs{{X: at(first - 1)}}
	for b := first; b <= last; b++ {
		xys = append(xys, plotter.XY{X: at(b), Y: 100 * float64(bars[b]) / float64(d.Count())})
	}
	return append(xys, plotter.XY{X: at(last + 1)}, plotter.XY{X: at(last + 2)})
}

// drawThroughput draws Fig. 13 (a): the throughput by the number of load balancers, and a
// line that extrapolates the throughput of one.
func drawThroughput(o Options, shaped, unshaped [][]float64) ([]byte, error) {
	p := plot.New()
	p.Title.Text = "Throughput by the number of balancers"
	p.X.Label.Text, p.Y.Label.Text, p.X.Min, p.Y.Min = "balancers", "of one", 0, 0
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(4)
	names := []string{fmt.Sprintf("links of %d Mbit/s", o.Rate), "no limits: all share these processors"}
	for i, all := range [][][]float64{shaped, unshaped} {
		var xys plotter.XYs
		one := bench.SpreadOf(all[0]).Median
		for n, figures := range all {
			xys = append(xys, plotter.XY{X: float64(n + 1), Y: bench.SpreadOf(figures).Median / one})
		}
		line, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return nil, err
		}
		line.Color, points.Color, line.Width = chart.Color(i), chart.Color(i), vg.Points(1.6)
		p.Add(line, points)
		p.Legend.Add(names[i], line, points)
	}
	ideal, err := plotter.NewLine(plotter.XYs{{}, {X: float64(o.Most), Y: float64(o.Most)}})
	if err != nil {
		return nil, err
	}
	ideal.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
	p.Add(ideal)
	p.Legend.Add("as many times one", ideal)
	return chart.SVG(p, 16, 12)
}

// drawOverTime draws Fig. 13 (b): the throughput of each second, and the number of load
// balancers times the throughput of one.
func drawOverTime(samples []sample, one float64) ([]byte, error) {
	p := plot.New()
	p.Title.Text = "Throughput while the number of balancers changes"
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "seconds", "Mbit/s", 0
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(4)
	var rates, numbers plotter.XYs
	for _, s := range samples {
		rates = append(rates, plotter.XY{X: s.at.Seconds(), Y: s.rate})
		numbers = append(numbers, plotter.XY{X: s.at.Seconds(), Y: one * float64(s.balancers)})
		p.Y.Max = max(p.Y.Max, 1.3*one*float64(s.balancers))
	}
	for i, xys := range []plotter.XYs{numbers, rates} {
		line, err := plotter.NewLine(xys)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = chart.Color(3-3*i), vg.Points(1.6)
		p.Add(line)
		p.Legend.Add([]string{"balancers, times the throughput of one", "throughput"}[i], line)
	}
	return chart.SVG(p, 26, 12)
}
