package ecmp

import (
	"fmt"
	"math"
	"time"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/lab/bench"
)

// drawDelays draws Fig. 13 (c): the distribution of the delays of starts and stops, one
// line each per router.
func drawDelays(all []*changing) design.Chart {
	c := design.Chart{
		Title: "Time until the router's kernel has exactly the running load balancers", Kind: design.Lines,
		X: design.Axis{Unit: "ms", Log: true}, Y: design.Axis{Unit: "%"},
	}
	for _, run := range all {
		for _, d := range []struct {
			name   string
			delays *delays
		}{{"start", &run.starts}, {"stop", &run.stops}} {
			if d.delays.Count() > 0 {
				c.Series = append(c.Series, design.Series{Name: fmt.Sprintf("%s, %s: %d", run.router, d.name, d.delays.Count()), Points: d.delays.steps()})
			}
		}
	}
	return c
}

// barsAnOctave is the number of bars per doubling.
const barsAnOctave = 4

// steps returns the outline of a histogram: the shares, in percent, in bars of exponentially
// growing delays, in milliseconds.
func (d *delays) steps() []design.Point {
	bars := map[int]uint64{}
	bar := func(ms float64) int { return int(math.Floor(barsAnOctave * math.Log2(ms))) }
	first, last := math.MaxInt, math.MinInt
	for upper, n := range d.Buckets() {
		b := bar(ms(max(upper, time.Microsecond)))
		bars[b] += n
		first, last = min(first, b), max(last, b)
	}
	at := func(b int) float64 { return math.Pow(2, float64(b)/barsAnOctave) }
	outline := []design.Point{{X: at(first)}}
	for b := first; b <= last; b++ {
		share := 100 * float64(bars[b]) / float64(d.Count())
		outline = append(outline, design.Point{X: at(b), Y: share}, design.Point{X: at(b + 1), Y: share})
	}
	return append(outline, design.Point{X: at(last + 1)})
}

// drawThroughput draws Fig. 13 (a): the throughput by the number of load balancers, and a
// line that extrapolates the throughput of one.
func drawThroughput(o Options, shaped, unshaped [][]float64) design.Chart {
	c := design.Chart{Title: "Throughput by the number of load balancers", Kind: design.Lines, X: design.Axis{Label: "load balancers"}, Y: design.Axis{Unit: "× one"}}
	names := []string{fmt.Sprintf("links of %d Mbit/s", o.Rate), "no limits: all share these CPUs"}
	for i, all := range [][][]float64{shaped, unshaped} {
		s, one := design.Series{Name: names[i]}, bench.SpreadOf(all[0]).Median
		for n, figures := range all {
			s.Points = append(s.Points, design.Point{X: float64(n + 1), Y: bench.SpreadOf(figures).Median / one})
		}
		c.Series = append(c.Series, s)
	}
	most := float64(o.Most)
	c.Series = append(c.Series, design.Series{Name: "linear", Dashed: true, Points: []design.Point{{X: 1, Y: 1}, {X: most, Y: most}}})
	return c
}

// drawOverTime draws Fig. 13 (b): the throughput of each second, and the number of load
// balancers times the throughput of one.
func drawOverTime(samples []sample, one float64) design.Chart {
	rates, numbers := design.Series{Name: "throughput"}, design.Series{Name: "load balancers, times the throughput of one", Dashed: true}
	for _, s := range samples {
		x := s.at.Seconds()
		rates.Points = append(rates.Points, design.Point{X: x, Y: s.rate})
		numbers.Points = append(numbers.Points, design.Point{X: x, Y: one * float64(s.balancers)})
	}
	return design.Chart{
		Title: "Throughput while the number of load balancers changes", Kind: design.Lines, X: design.Axis{Unit: "s"}, Y: design.Axis{Unit: "Mbit/s"},
		Series: []design.Series{rates, numbers},
	}
}
