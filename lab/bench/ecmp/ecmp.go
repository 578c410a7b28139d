// Package ecmp is the experiment about the routes between balancers and router:
// how soon the router's kernel has what balancers announce, what that does to
// flows, and what traffic gets by it. Everything that takes part is a real process
// in a network namespace of its own; only the case table has one that speaks for
// all balancers.
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

// Options say what is run.
type Options struct {
	// Binary is the fairlead to run in the lab.
	Binary string
	// Cases are what is measured, by name.
	Cases []string
	// Routers are what is upstream, one after the other.
	Routers []string
	// Duration is how long each run goes on whose length is free; 0: as long as is
	// usual for its case. Every is the time between two changes there, Most how
	// many balancers run at most, and Seed decides how many when.
	Duration, Every time.Duration
	Most            int
	Seed            uint64
	// Rate is what a balancer's link is limited to, in Mbit/s.
	Rate uint64
	// Flows are how many flows are counted, or connections measured.
	Flows int
	// Prefixes and Balancers are the size of the table, Rounds how often each
	// figure is measured.
	Prefixes, Balancers, Rounds int
	// Logs is the folder for the logs of all processes; empty for one that
	// vanishes with the sandbox.
	Logs string
	// Progress is told what goes on.
	Progress io.Writer
	// Save, where it is given, is told of what is there of a result now and then.
	Save func(*bench.Report) error
}

// cases are the measurements by name, each in labs of its own.
var cases = map[string]func(context.Context, Options, *Result) error{
	"convergence": convergence,
	"failures":    failures,
	"throughput":  throughput,
	"bfd":         bfd,
	"nexthops":    nexthops,
	"reflectors":  reflectors,
	"restarts":    restarts,
	"table":       table,
}

// Cases names what can be measured.
func Cases() []string { return slices.Sorted(maps.Keys(cases)) }

// DefaultOptions are the experiment as it is quoted.
func DefaultOptions() Options {
	return Options{
		Cases: Cases(), Routers: slices.Clone(cluster.Routers), Every: 5 * time.Second, Most: 4, Seed: 1, Rate: 20, Flows: 400,
		Prefixes: 1000, Balancers: 16, Rounds: 5,
	}
}

// Bounds of the table: prefixes are numbered within 10.128.0.0/9, balancers
// within 10.0.1.0/24.
const (
	mostPrefixes  = 1 << 15
	mostBalancers = 250
)

// Validate says which option is wrong.
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
				errs = append(errs, fmt.Errorf("--%s: %q is none of %v", flag, name, known))
			}
		}
	}
	among("case", o.Cases, Cases())
	among("router", o.Routers, cluster.Routers)
	return errors.Join(errs...)
}

// Result is a report, and the pictures that belong to it.
type Result struct {
	*bench.Report
	plots map[string][]byte // SVG by the file's name
}

// WritePlots writes the pictures into a folder, and gives their paths.
func (r *Result) WritePlots(dir string) (paths []string, err error) {
	return bench.WriteFiles(dir, r.plots)
}

// Run measures the cases, one after the other. It needs the sandbox. Where it ends
// with an error, the cases before are in the result; where that is the context's,
// also what there is of the one that was under way, if it is a long one.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &Result{Report: bench.New("ecmp"), plots: map[string][]byte{}}
	// Temporary files of whatever is started go with the sandbox, too.
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return r, err
	}
	for _, name := range o.Cases {
		o.say("%s ...", name)
		if err := cases[name](ctx, o, r); err != nil {
			return r, fmt.Errorf("case %s: %w", name, err)
		}
	}
	if left := sandbox.Leftovers(); len(left) > 0 {
		return r, fmt.Errorf("left behind: %v", left)
	}
	return r, nil
}

func (o Options) say(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }

// save keeps what is there of a result, with the rows of a case that goes on.
func (o Options) save(r *Result, more []bench.Row) {
	if o.Save == nil {
		return
	}
	so := *r.Report
	so.Rows = slices.Concat(r.Rows, more)
	if err := o.Save(&so); err != nil {
		o.say("cannot keep the figures so far: %v", err)
	}
}

// long gives the length of a run: what is asked for, or what is usual.
func (o Options) long(usual time.Duration) time.Duration {
	if o.Duration != 0 {
		return o.Duration
	}
	return usual
}
