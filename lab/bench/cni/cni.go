// Package cni measures how pods are attached to the network. It builds the two sites of
// "Open-Cloud Computing Platform Design based on Virtually Dedicated Network and
// Container Interface" with pods on each kind of network, and measures throughput,
// latency and CPU time; how many requests pass a load balancer whose pod is in each of
// flannel's networks, as in "A portable load balancer for Kubernetes clusters" (in
// Japanese, 2017); and whether virtually dedicated networks keep their guarantees.
package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/vdn"
)

// Options configures a run.
type Options struct {
	// Binary is the fairlead binary to run in the lab.
	Binary string
	// Plugin is the fairlead-cni binary that attaches pods without a bridge, through a
	// controller at each site. If it is empty, they are attached by netlink only.
	Plugin string
	// Cases contains the names of the cases to measure.
	Cases []string
	// Rates contains the rate limits of the link between the sites, such as 1G or none.
	// Plain contains those of them that are also measured without offloads.
	Rates, Plain []string
	// Rounds is how often each figure is measured, in alternation with the others, and
	// Seconds the duration of each measurement.
	Rounds  int
	Seconds float64
	// Pods contains the numbers of backends behind a load balancer.
	Pods []int
	// Logs is the folder for the logs of all agents. If it is empty, the logs disappear
	// with the sandbox.
	Logs string
	// Progress receives progress messages.
	Progress io.Writer
}

// step is a case. The order of steps is the default order of the cases.
type step struct {
	name string
	run  func(context.Context, Options, *bench.Report) error
}

var steps = []step{
	{"throughput", throughput},
	{"wan", wide},
	{"latency", latency},
	{"balancer", balancer},
	{"slices", attacked},
	{"bulk", bulk},
	{"attachments", attachments},
	{"federation", federation},
}

// Cases returns the names of all cases.
func Cases() (names []string) {
	for _, s := range steps {
		names = append(names, s.name)
	}
	return names
}

// noRate is the rate of a link without a limit.
const noRate = "none"

// DefaultOptions returns the options behind the published figures.
func DefaultOptions() Options {
	return Options{
		Cases: Cases(), Rates: []string{"1G", "10G", noRate}, Plain: []string{"1G", noRate},
		Rounds: 5, Seconds: 0.8, Pods: []int{1, 4},
	}
}

// mostPods is the maximum number of backends behind a load balancer.
const mostPods = 100

// Validate reports which options are invalid.
func (o Options) Validate() error {
	var errs []error
	if o.Rounds < 1 || o.Rounds > 1000 {
		errs = append(errs, fmt.Errorf("--rounds: %d is not between 1 and 1000", o.Rounds))
	}
	if !(o.Seconds >= 0.05 && o.Seconds <= 3600) {
		errs = append(errs, fmt.Errorf("--seconds: %g is not between 0.05 and 3600", o.Seconds))
	}
	if len(o.Cases) == 0 {
		errs = append(errs, fmt.Errorf("--case: name some of %v", Cases()))
	}
	for _, name := range o.Cases {
		if !slices.Contains(Cases(), name) {
			errs = append(errs, fmt.Errorf("--case: %q is not one of %v", name, Cases()))
		}
	}
	for _, text := range o.Rates {
		if _, err := limit(text); err != nil {
			errs = append(errs, fmt.Errorf("--rates: %w", err))
		}
	}
	for _, text := range o.Plain {
		if !slices.Contains(o.Rates, text) {
			errs = append(errs, fmt.Errorf("--plain: %q is not one of --rates", text))
		}
	}
	for _, n := range o.Pods {
		if n < 1 || n > mostPods {
			errs = append(errs, fmt.Errorf("--pods: %d is not between 1 and %d", n, mostPods))
		}
	}
	return errors.Join(errs...)
}

// limit parses a rate in bit/s. It returns 0 for none.
func limit(text string) (vdn.Rate, error) {
	if text == noRate {
		return 0, nil
	}
	rate, err := vdn.ParseRate(text)
	if err == nil && rate < 1e6 {
		err = fmt.Errorf("rate %q: want 1M at least, or %s", text, noRate)
	}
	return rate, err
}

// Run measures the cases one after the other. It must run in the sandbox. If it returns
// an error, the result contains the cases before.
func Run(ctx context.Context, o Options) (*bench.Report, error) {
	r := bench.New("cni")
	// Put the temporary files of child processes into the sandbox, too.
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return r, err
	}
	if o.Logs == "" {
		o.Logs = sandbox.WorkDir
	}
	if o.Plugin == "" {
		r.Note("pods on macvlan and host-device are attached by netlink only: fairlead-cni was not found next to the binary")
	} else {
		r.Note("pods on macvlan and host-device are joined by fairlead-cni, with addresses of a controller at each site; nothing is enforced but in federation")
	}
	for _, s := range steps {
		if !slices.Contains(o.Cases, s.name) {
			continue
		}
		began := time.Now()
		if err := s.run(ctx, o, r); err != nil {
			return r, fmt.Errorf("case %s: %w", s.name, err)
		}
		o.logf("%s took %s", s.name, time.Since(began).Round(time.Second))
	}
	if left := sandbox.Leftovers(); len(left) > 0 {
		return r, fmt.Errorf("not cleaned up: %v", left)
	}
	return r, nil
}

func (o Options) logf(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }

// turn returns the list rotated for a round. Each round starts one element further, so
// that no element always follows the same one.
func turn[T any](all []T, round int) []T {
	first := round % len(all)
	return append(slices.Clone(all[first:]), all[:first]...)
}
