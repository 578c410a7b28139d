package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/transfer"
)

// asking is how many seconds requests are sent for each second of a measurement.
const asking = 0.3

// latency measures request latency on every path without a rate limit, one request at a
// time.
func latency(ctx context.Context, o Options, r *bench.Report) (err error) {
	n, err := newNetwork(ctx, o, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	ways, err := n.ways()
	if err != nil {
		return err
	}
	o.logf("latency, %d rounds", o.Rounds)
	p50, p99 := map[[2]string][]float64{}, map[[2]string][]float64{}
	for round := range o.Rounds {
		for _, w := range turn(ways, round) {
			got, err := w.from.Do(transfer.Order{Ask: netip.AddrPortFrom(w.target, transfer.EchoPort), Seconds: asking * o.Seconds})
			if err != nil {
				return fmt.Errorf("%s, %s: %w", w.pair, w.kind, err)
			}
			key := [2]string{w.pair, w.kind}
			p50[key], p99[key] = append(p50[key], got.P50), append(p99[key], got.P99)
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	for _, pair := range []string{toServer, betweenPods} {
		for _, kind := range Kinds {
			if key := [2]string{pair, kind}; len(p50[key]) > 0 {
				name := fmt.Sprintf("latency, %s, %s: ", pair, kind)
				r.Rows = append(r.Rows, bench.Estimated(name+"p50", "us", p50[key]...), bench.Estimated(name+"p99", "us", p99[key]...))
				o.logf("  %-14s %-15s %6.1f us", pair, kind, bench.SpreadOf(p50[key]).Median)
			}
		}
	}
	r.Note("latency: %d bytes and their echo over one open connection, %.2g s each time; the link between the sites has no delay of its own", transfer.QuestionSize, asking*o.Seconds)
	return nil
}
