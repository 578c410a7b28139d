package ecmp

import (
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/load"
)

// delays collects any number of delays in constant memory.
type delays struct {
	load.Histogram
	min, max time.Duration
	first    []float64 // up to mostDelays of them, in milliseconds
}

// mostDelays is enough for changes every minute for a day.
const mostDelays = 2000

// Add adds one delay.
func (d *delays) Add(t time.Duration) {
	if d.Count() == 0 {
		d.min = t
	}
	d.min, d.max = min(d.min, t), max(d.max, t)
	d.Histogram.Add(t)
	if len(d.first) < mostDelays {
		d.first = append(d.first, ms(t))
	}
}

// quantile is at most 1/16 too large, and never exceeds the maximum.
func (d *delays) quantile(q float64) time.Duration { return min(d.Quantile(q), d.max) }

// rows returns the median, the 99th percentile and the maximum, the latter two with their
// goals.
func (d *delays) rows(name string, nearly, all time.Duration) []bench.Row {
	row := func(what string, t time.Duration) bench.Row {
		return bench.Row{Case: name + ", " + what, Measured: ms(t), Unit: "ms", Min: ms(d.min), Max: ms(d.max), Runs: int(d.Count())}
	}
	middle := row("p50", d.quantile(0.5))
	middle.Samples = d.first
	return []bench.Row{
		middle, row("p99", d.quantile(0.99)).AtMost(ms(nearly)), row("max", d.max).AtMost(ms(all)),
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
