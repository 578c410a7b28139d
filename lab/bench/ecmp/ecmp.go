// Package ecmp is the experiment about the routes between load balancers and router: how
// long it takes until the router's kernel has the advertised routes, which flows a route
// change breaks, and the throughput. Every participant is a real process in its own
// network namespace, except in the case table, where one process speaks for all load
// balancers.
package ecmp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Options configures a run.
type Options struct {
	// Binary is the fairlead binary to run in the lab.
	Binary string
	// Cases contains the names of the cases to measure.
	Cases []string
	// Routers contains the upstream routers to measure, one after the other.
	Routers []string
	// Duration is the length of each run with a free length; 0 means the default of its
	// case. Every is the time between two changes in such a run, Most the maximum number
	// of running load balancers, and Seed the seed that selects their numbers.
	Duration, Every time.Duration
	Most            int
	Seed            uint64
	// Rate is the rate limit of a load balancer's link, in Mbit/s.
	Rate uint64
	// Flows is the number of flows that are counted, or of connections that are measured.
	Flows int
	// Prefixes is the number of prefixes in the table, and of Services. Balancers is the number of
	// load balancers in the table, Rounds how often each figure is
	// measured.
	Prefixes, Balancers, Rounds int
	// Logs is the folder for the logs of all processes. If it is empty, the logs
	// disappear with the sandbox.
	Logs string
	// Progress receives progress messages.
	Progress io.Writer
	// noBFD leaves sessions to their hold time.
	noBFD bool
	// Save, if set, is called with the partial report from time to time.
	Save func(*bench.Report) error
}

// cases contains the measurements by name. Each one builds its own labs.
var cases = map[string]func(context.Context, Options, *bench.Report) error{
	"convergence": convergence,
	"failures":    failures,
	"holdtime":    holdTime,
	"neighbors":   neighbors,
	"throughput":  throughput,
	"bfd":         bfd,
	"nexthops":    nexthops,
	"reflectors":  reflectors,
	"restarts":    restarts,
	"services":    services,
	"table":       table,
	"zebra":       zebra,
}

// Cases returns the names of all cases.
func Cases() []string { return slices.Sorted(maps.Keys(cases)) }

// DefaultOptions returns the options behind the published figures.
func DefaultOptions() Options {
	return Options{
		Cases: Cases(), Routers: slices.Clone(cluster.Routers), Every: 5 * time.Second, Most: 4, Seed: 1, Rate: 20, Flows: 400,
		Prefixes: 1000, Balancers: 16, Rounds: 5,
	}
}

// Bounds of the table: prefixes are in 10.128.0.0/9, load balancers in 10.0.1.0/24.
const (
	mostPrefixes  = 1 << 15
	mostBalancers = 250
)

// Validate reports which options are invalid.
func (o Options) Validate() error {
	var errs []error
	within := func(name string, n, low, high int) {
		if n < low || n > high {
			errs = append(errs, fmt.Errorf("--%s: %d is not between %d and %d", name, n, low, high))
		}
	}
	within("prefixes", o.Prefixes, 1, mostPrefixes)
	within("balancers", o.Balancers, 2, mostBalancers)
	within("rounds", o.Rounds, 1, 1000)
	within("most", o.Most, 2, 16)
	within("flows", o.Flows, 16, 4000)
	within("rate", int(o.Rate), 1, 10000)
	if o.Duration != 0 && (o.Duration < time.Second || o.Duration > 1000*time.Hour) {
		errs = append(errs, fmt.Errorf("--duration: %s is not between 1s and 1000h", o.Duration))
	}
	if o.Every < 100*time.Millisecond || o.Every > time.Hour {
		errs = append(errs, fmt.Errorf("--every: %s is not between 100ms and 1h", o.Every))
	}
	among := func(flag string, given, known []string) {
		if len(given) == 0 {
			errs = append(errs, fmt.Errorf("--%s: name some of %v", flag, known))
		}
		for _, name := range given {
			if !slices.Contains(known, name) {
				errs = append(errs, fmt.Errorf("--%s: %q is not one of %v", flag, name, known))
			}
		}
	}
	among("case", o.Cases, Cases())
	among("router", o.Routers, cluster.Routers)
	return errors.Join(errs...)
}

// Run measures the cases one after the other. It must run in the sandbox. If it returns
// an error, the result contains the cases before. If that is the context's error, it also
// contains what an interrupted long case has measured so far.
func Run(ctx context.Context, o Options) (*bench.Report, error) {
	r := bench.New("ecmp")
	// Put the temporary files of child processes into the sandbox, too.
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return r, err
	}
	for _, name := range o.Cases {
		o.logf("%s ...", name)
		if err := cases[name](ctx, o, r); err != nil {
			return r, fmt.Errorf("case %s: %w", name, err)
		}
	}
	if left := sandbox.Leftovers(); len(left) > 0 {
		return r, fmt.Errorf("not cleaned up: %v", left)
	}
	return r, nil
}

func (o Options) logf(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }

// save saves the partial result with the rows of the running case.
func (o Options) save(r *bench.Report, more []bench.Row) {
	if o.Save == nil {
		return
	}
	so := *r
	so.Rows = slices.Concat(r.Rows, more)
	if err := o.Save(&so); err != nil {
		o.logf("cannot save the results so far: %v", err)
	}
}

// long returns the length of a run: the requested or the default one.
func (o Options) long(usual time.Duration) time.Duration {
	if o.Duration != 0 {
		return o.Duration
	}
	return usual
}
