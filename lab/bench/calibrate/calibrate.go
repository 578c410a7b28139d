// Package calibrate compares the simulator with the lab. It measures how long this
// machine takes per packet and what a link of the lab carries. With these figures, the
// simulator predicts the results of the ECMP experiment. Then the package runs the same
// experiment with real agents, a reflector and a router in network namespaces.
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

// Options configures a run.
type Options struct {
	// Binary is the fairlead binary to run in the lab, Logs the folder for its logs.
	Binary, Logs string
	// Balancers is the maximum number of load balancers. LinkRate is the rate of each
	// one's link, in bit/s.
	Balancers int
	LinkRate  uint64
	// Rate is the number of packets sent per second, spread over Flows flows.
	Rate, Flows int
	// Duration is the duration of the load in each case.
	Duration time.Duration
	// Seeds is the number of seeds that the simulator predicts with.
	Seeds    int
	Progress io.Writer
}

// DefaultOptions returns options that suit two busy CPUs.
func DefaultOptions() Options {
	return Options{Balancers: 4, LinkRate: 8_000_000, Rate: 3200, Flows: 256, Duration: 6 * time.Second, Seeds: 10}
}

// Validate reports which option is invalid.
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

// PacketBytes is the size of a packet on the link, including the Ethernet header.
const PacketBytes = 1000

// Result contains what was measured and predicted. Its JSON field names are stable.
type Result struct {
	Version string `json:"version"`
	Kernel  string `json:"kernel"`
	Machine string `json:"machine"`
	// PacketNs is the time that the load balancer's program takes per packet, in
	// nanoseconds. LinkBits is what a link of rate LinkRate carries, in bit/s.
	PacketNs float64 `json:"packetNs"`
	LinkRate uint64  `json:"linkRate"`
	LinkBits float64 `json:"linkBits"`
	Rows     []Row   `json:"rows"`
}

// Row is one case of the experiment.
type Row struct {
	Case string  `json:"case"`
	Sent float64 `json:"sent"` // packets per second, as measured
	// Received is the number of packets per second that arrived at the backends under
	// load. Lost is the percentage of packets that reached no backend.
	Received float64 `json:"received"`
	Lost     float64 `json:"lost"`
	// NoticedMs is the time, in milliseconds, until the router stopped sending to a
	// disconnected load balancer. BFD takes at most 900 ms, unless the machine is
	// overloaded.
	NoticedMs float64 `json:"noticedMs,omitempty"`
	// ReceivedPredicted and LostPredicted are the simulator's predictions.
	ReceivedPredicted bench.Spread `json:"receivedPredicted"`
	LostPredicted     bench.Spread `json:"lostPredicted"`
}

// Run measures the machine and each case in the lab, and predicts the same cases. If it
// returns an error, the Result contains what was measured before. It must run in a
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

// measuredCase is the data plane case whose cost is used: 1,024 flows with tunnel and
// Maglev.
const measuredCase = "second chance, 1 k flows"

// packetNs returns the time that the load balancer's program takes per packet.
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
	return 0, fmt.Errorf("calibrate: the report has no case %q", measuredCase)
}

// WriteTable prints the result as a table.
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
