// Package calibrate sets the simulator beside the lab: it measures what the
// running machine takes for a packet, and what a link of the lab carries, has the
// simulator predict by these how the ECMP experiment comes out, and runs that
// experiment with real agents, reflector and router in network namespaces.
package calibrate

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/xdpbench"
)

// Options say what is run.
type Options struct {
	// Binary is the fairlead to run in the lab, Logs the folder for its logs.
	Binary, Logs string
	// Balancers is up to how many there are, each with a link of LinkRate bits a
	// second.
	Balancers int
	LinkRate  uint64
	// Rate is how many packets a second are sent, of so many Flows.
	Rate, Flows int
	// Duration is how long each case is loaded.
	Duration time.Duration
	// Seeds the simulator predicts with.
	Seeds    int
	Progress io.Writer
}

// DefaultOptions are those that fit two busy processors.
func DefaultOptions() Options {
	return Options{Balancers: 4, LinkRate: 8_000_000, Rate: 3200, Flows: 256, Duration: 6 * time.Second, Seeds: 10}
}

// Validate says which option is wrong.
func (o Options) Validate() error {
	within := func(flag string, x, low, high int) error {
		if x < low || x > high {
			return fmt.Errorf("--%s: %d is not between %d and %d", flag, x, low, high)
		}
		return nil
	}
	for _, err := range []error{
		within("balancers", o.Balancers, 2, 16), within("rate", o.Rate, 100, 100_000), within("flows", o.Flows, 1, 4096),
		within("seeds", o.Seeds, 2, 100), within("link-rate", int(min(o.LinkRate, 1<<40)), 1_000_000, 1_000_000_000),
		within("duration", int(o.Duration/time.Second), 4, 600),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// PacketBytes is the size of packets as links count them, with Ethernet's header.
const PacketBytes = 1000

// Result is what was measured and predicted. Its JSON field names are stable.
type Result struct {
	Version string `json:"version"`
	Kernel  string `json:"kernel"`
	Machine string `json:"machine"`
	// PacketNs is what the balancer's program takes for a packet, in nanoseconds;
	// LinkBits what a link carries of LinkRate, in bits a second.
	PacketNs float64 `json:"packetNs"`
	LinkRate uint64  `json:"linkRate"`
	LinkBits float64 `json:"linkBits"`
	Rows     []Row   `json:"rows"`
}

// Row is one case of the experiment.
type Row struct {
	Case string  `json:"case"`
	Sent float64 `json:"sent"` // packets a second, as they were
	// Received are packets a second at the servers while the load went on, Lost the
	// part of the packets, in per cent, that came to none of them.
	Received float64 `json:"received"`
	Lost     float64 `json:"lost"`
	// NoticedMs is after how many milliseconds the router sent nothing more to a
	// balancer that was cut off; BFD takes at most 900 where the machine lets it.
	NoticedMs float64 `json:"noticedMs,omitempty"`
	// ReceivedPredicted and LostPredicted are what the simulator said.
	ReceivedPredicted bench.Spread `json:"receivedPredicted"`
	LostPredicted     bench.Spread `json:"lostPredicted"`
}

// Run measures the machine, then each case in the lab, and predicts the same. What
// could be measured is in the Result also where it ends with an error. It needs a
// sandbox.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &Result{Version: version.String(), Kernel: version.Release(), Machine: bench.Machine(), LinkRate: o.LinkRate, Rows: []Row{}}
	var err error
	if r.PacketNs, err = packetNs(ctx, o); err != nil {
		return r, err
	}
	if r.LinkBits, err = linkBits(ctx, o); err != nil {
		return r, err
	}
	return r, r.cases(ctx, o)
}

// measuredCase is the one whose cost is taken: 1,024 flows by tunnel and maglev.
const measuredCase = "second chance, 1 k flows"

// packetNs gives what the balancer's program takes for a packet.
func packetNs(ctx context.Context, o Options) (float64, error) {
	report, err := xdpbench.MeasureDataplane(ctx, xdpbench.DataplaneOptions{Rounds: 9, Only: measuredCase, Progress: o.Progress})
	if err != nil {
		return 0, err
	}
	for _, row := range report.Rows {
		if row.Case == measuredCase && row.Raw != nil {
			return row.Raw.Median, nil
		}
	}
	return 0, fmt.Errorf("calibrate: nothing says what case %q took", measuredCase)
}

// WriteTable writes it for people.
func (r *Result) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "a packet takes the balancer's program %.0f ns; a link of %.1f Mbit/s carries %.2f\n\n", r.PacketNs, float64(r.LinkRate)/1e6, r.LinkBits/1e6)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CASE\tSENT/s\tRECEIVED/s\tPREDICTED (ALL SEEDS)\tLOST %\tPREDICTED (ALL SEEDS)")
	words := func(s bench.Spread, digits int) string {
		return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, s.Median, digits, s.Min, digits, s.Max)
	}
	for _, row := range r.Rows {
		fmt.Fprintln(w, strings.Join([]string{row.Case, fmt.Sprintf("%.0f", row.Sent), fmt.Sprintf("%.0f", row.Received), words(row.ReceivedPredicted, 0),
			fmt.Sprintf("%.1f", row.Lost), words(row.LostPredicted, 1)}, "\t"))
	}
	return w.Flush()
}
