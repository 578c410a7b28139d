package xdpbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/fairlead/fairlead/lab/bench"
)

// The times of Katran and of a MAC address swap on the same machine, live over veth, in
// median nanoseconds per frame. The factor by which another machine is slower at swapping
// is assumed to apply to Katran, too.
const (
	swapThere = 74
	katran    = "Katran, scaled"
)

var katranThere = map[uint64]float64{1: 143, 1 << 10: 159, 1 << 16: 322, 1 << 20: 391}

// goalFlows is the row with a goal: half the time of Katran.
const goalFlows = 1 << 16

// LiveOptions configures the measurement.
type LiveOptions struct {
	// Rounds is the number of rounds. Each round measures every row once.
	Rounds int
	// Frames is the number of frames per figure.
	Frames uint32
	// Progress receives progress messages.
	Progress io.Writer
}

// Validate reports which options are invalid.
func (o LiveOptions) Validate() error {
	var errs []error
	if o.Rounds < 1 || o.Rounds > 100 {
		errs = append(errs, fmt.Errorf("--rounds: %d is not between 1 and 100", o.Rounds))
	}
	if o.Frames < 1<<12 || o.Frames > 1<<26 {
		errs = append(errs, fmt.Errorf("--frames: %d is not between %d and %d", o.Frames, 1<<12, 1<<26))
	}
	return errors.Join(errs...)
}

// liveRow is one case with the results of its rounds.
type liveRow struct {
	name  string
	flows uint64
	swap  bool
	all   []float64
	lost  uint64
	sent  uint64
	bytes float64
}

func liveRows() []*liveRow {
	rows := []*liveRow{{name: "MAC swap", flows: goalFlows, swap: true}}
	for _, n := range []struct {
		flows uint64
		name  string
	}{{1, "1 flow"}, {1 << 10, "1 k flows"}, {1 << 16, "64 k flows"}, {1 << 20, "1 M flows"}} {
		rows = append(rows, &liveRow{name: "tunnel, second chance, " + n.name, flows: n.flows})
	}
	return rows
}

// MeasureLive measures the load balancer on one CPU, together with the generator and the
// sink. It must run in a sandbox.
func MeasureLive(ctx context.Context, o LiveOptions) (*bench.Report, error) {
	l, err := NewLive()
	if err != nil {
		return nil, err
	}
	rows := liveRows()
	for round := 0; round < o.Rounds && err == nil; round++ {
		fmt.Fprintf(o.Progress, "live: round %d of %d\n", round+1, o.Rounds)
		if err = ctx.Err(); err == nil {
			err = l.round(rows, o.Frames)
		}
	}
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	return liveReport(rows), nil
}

// round measures every row once.
func (l *Live) round(rows []*liveRow, frames uint32) error {
	for i, row := range rows {
		var err error
		switch {
		case row.swap:
			err = l.Swap()
		case i == 0 || rows[i-1].swap:
			err = l.Balance(tunnelFrontend())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		// Send all flows once first, to fill maps and caches.
		if _, err := l.Run(max(frames/8, uint32(row.flows)), row.flows); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		r, err := l.Run(frames, row.flows)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		row.all = append(row.all, r.PerFrame)
		row.sent, row.lost, row.bytes = row.sent+r.Sent, row.lost+r.Sent-r.Sunk, r.Bytes
	}
	return nil
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

func liveReport(rows []*liveRow) *bench.Report {
	report := bench.New("live")
	report.Note("frames that the kernel sends (BPF_F_TEST_XDP_LIVE_FRAMES), every header rewritten, into a veth, through the program, back, and dropped by a counter: " +
		"one processor's time a frame for all of that, the median of the rounds")
	report.Note("the balancer has one VIP with %d servers on a ring of %d, and leaves by a redirect, as on every veth", servers, ringSize)
	scale := median(rows[0].all) / swapThere
	report.Note("Katran's figures are those of the machine that swaps MAC addresses in %d ns, times %.2f; the goal is half of its figure at 64 k flows", swapThere, scale)
	for _, row := range rows {
		r := bench.Row{
			Case: "live: " + row.name, Measured: median(row.all), Unit: "ns/frame",
			Min: slices.Min(row.all), Max: slices.Max(row.all), Runs: len(row.all),
		}
		if !row.swap {
			r = r.ComparedWith(katran, katranThere[row.flows]*scale)
		}
		if !row.swap && row.flows == goalFlows {
			r = r.AtMost(katranThere[row.flows] * scale / 2)
		}
		report.Rows = append(report.Rows, r)
		report.Note("%s: %d frames sent, %d lost, %.0f bytes each on the way back", row.name, row.sent, row.lost, row.bytes)
	}
	return report
}
