package cni

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/slices"
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
func attacked(ctx context.Context, o Options, r *bench.Report) error {
	got, err := slices.SliceUnderAttack(ctx, slices.Options{
		Phase:    max(leastPhase, time.Duration(attacking*o.Seconds*float64(time.Second))),
		Progress: func(phase string) { o.logf("slices: %s", phase) },
	})
	if err != nil {
		return err
	}
	slicesRows(r, got)
	return nil
}

// bulkFlows is the number of connections of a data transfer.
const bulkFlows = 8

// bulk measures a data transfer over a slice with a guarantee while another slice attacks
// it, second by second.
func bulk(ctx context.Context, o Options, r *bench.Report) error {
	got, err := slices.SliceUnderAttack(ctx, slices.Options{
		Connections: bulkFlows,
		Phase:       max(leastPhase, time.Duration(attacking*o.Seconds*float64(time.Second))),
		Progress:    func(phase string) { o.logf("bulk: %s", phase) },
	})
	if err != nil {
		return err
	}
	for _, phase := range []slices.Phase{slices.Alone, slices.Attacked} {
		var short, rates []float64
		for i, s := range got.Seconds {
			if s.Phase == phase && i > 0 && got.Seconds[i-1].Phase == phase { // not the first second
				rates, short = append(rates, s.Guaranteed/1e6), append(short, 100*(1-s.Guaranteed/(payload*float64(got.Guarantee))))
			}
		}
		name := fmt.Sprintf("bulk, %d flows, %s guaranteed of %s, %s", bulkFlows, got.Guarantee, got.Uplink, phase)
		r.Rows = append(r.Rows, bench.Plain(name, "Mbit/s", rates...), bench.Plain(name+": below the guarantee", "%", short...).AtMost(shortGoal))
	}
	return nil
}

func slicesRows(r *bench.Report, got slices.Result) {
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
	r.Charts = append(r.Charts, drawSlices(got))
}

// drawSlices draws the throughput of both slices per second, and the guarantee.
func drawSlices(got slices.Result) design.Chart {
	c := design.Chart{
		Title: fmt.Sprintf("A slice of %s guaranteed on an uplink of %s, attacked by another one", got.Guarantee, got.Uplink), Kind: design.Lines,
		X: design.Axis{Unit: "s"}, Y: design.Axis{Unit: "Mbit/s"},
		Series: []design.Series{{Name: "with the guarantee"}, {Name: "attacker"}, {Name: "payload of the guarantee", Dashed: true}},
	}
	for i, s := range got.Seconds {
		for n, bits := range []float64{s.Guaranteed, s.Attacker, payload * float64(got.Guarantee)} {
			c.Series[n].Points = append(c.Series[n].Points, design.Point{X: s.At, Y: bits / 1e6})
		}
		if i == 0 || s.Phase != got.Seconds[i-1].Phase {
			c.Events = append(c.Events, design.Event{At: s.At, Name: string(s.Phase)})
		}
	}
	return c
}
