package cni

import (
	"context"
	"fmt"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/slices"
	"github.com/fairlead/fairlead/lab/chart"
	"github.com/fairlead/fairlead/vdn"
)

const (
	// attacking is how many seconds each phase takes for each second of a measurement.
	attacking = 8
	// leastPhase leaves enough seconds for a median, after the first one.
	leastPhase = 4 * time.Second
	// shortGoal is the maximum percentage by which a slice may fall short of its
	// guarantee.
	shortGoal = 5
	// payload is the share of a 1,514-byte frame that carries TCP payload.
	payload = 1448.0 / 1514
)

// attacked measures a slice with a guarantee while another slice attacks it.
func attacked(ctx context.Context, o Options, r *Result) error {
	got, err := slices.SliceUnderAttack(ctx, slices.Options{
		Phase:    max(leastPhase, time.Duration(attacking*o.Seconds*float64(time.Second))),
		Progress: func(phase string) { o.logf("slices: %s", phase) },
	})
	if err != nil {
		return err
	}
	return r.slicesRows(got)
}

func (r *Result) slicesRows(got slices.Result) (err error) {
	alone, _ := got.Of(slices.Alone)
	under, attacker := got.Of(slices.Attacked)
	_, lent := got.Of(slices.AttackerAlone)
	for _, row := range []struct {
		name     string
		measured float64
		promised vdn.Rate
	}{
		{"alone", alone, got.Uplink}, {"attacked", under, got.Guarantee},
		{"its attacker, attacking", attacker, 0}, {"its attacker, alone", lent, got.Uplink},
	} {
		name := fmt.Sprintf("slices, %s guaranteed of %s, %s", got.Guarantee, got.Uplink, row.name)
		r.Rows = append(r.Rows, bench.Plain(name, "Mbit/s", row.measured/1e6))
		if row.promised > 0 {
			short := 100 * (1 - row.measured/(payload*float64(row.promised)))
			r.Rows = append(r.Rows, bench.Plain(name+": below its share", "%", short).AtMost(shortGoal))
		}
	}
	r.Note("slices: payload; its share is %.1f %% of its guarantee, or of the uplink without other traffic, because frames have headers. The attacker sends a flood of UDP and 32 connections of TCP. Medians of the seconds of each phase but its first", 100*payload)
	r.files["cni-slices.svg"], err = drawSlices(got)
	return err
}

// drawSlices draws the throughput of both slices per second, and the guarantee.
func drawSlices(got slices.Result) ([]byte, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("A slice of %s guaranteed on an uplink of %s, attacked by another", got.Guarantee, got.Uplink)
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min, p.Y.Max = "seconds", "Mbit/s", 0, 1.3*float64(got.Uplink)/1e6
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(4)
	series := make([]plotter.XYs, 3)
	var events []chart.Event
	for i, s := range got.Seconds {
		for n, bits := range []float64{s.Guaranteed, s.Attacker, payload * float64(got.Guarantee)} {
			series[n] = append(series[n], plotter.XY{X: s.At, Y: bits / 1e6})
		}
		if i == 0 || s.Phase != got.Seconds[i-1].Phase {
			events = append(events, chart.Event{At: time.Duration((s.At - 1) * float64(time.Second)), Name: string(s.Phase)})
		}
	}
	for n, name := range []string{"with the guarantee", "attacker", "payload of the guarantee"} {
		line, err := plotter.NewLine(series[n])
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = chart.Color(2+n), vg.Points(1.6)
		if n == 2 {
			line.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
		}
		p.Add(line)
		p.Legend.Add(name, line)
	}
	if err := chart.Mark(p, float64(got.Uplink)/1e6, events); err != nil {
		return nil, err
	}
	return chart.SVG(p, 26, 12)
}
