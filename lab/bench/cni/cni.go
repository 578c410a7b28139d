// Package cni is the experiment about how pods are joined to the network: the two
// sites of "Open-Cloud Computing Platform Design based on Virtually Dedicated Network
// and Container Interface" with pods of each kind of network, what they send and how
// soon they are answered, and what processor time that takes; how many requests pass
// a balancer whose pod is in each of flannel's networks, as in "A portable load
// balancer for Kubernetes clusters" (in Japanese, 2017); and what virtually dedicated
// networks promise.
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

// Options say what is run.
type Options struct {
	// Binary is the fairlead to run in the lab.
	Binary string
	// Plugin is the fairlead-cni that joins pods without a bridge, by a controller at
	// each site; empty to do it by netlink alone.
	Plugin string
	// Cases are what is measured, by name.
	Cases []string
	// Rates are what the link between the sites is limited to: 1G, none. Plain are
	// those of them at which it is measured without offloads, too.
	Rates, Plain []string
	// Rounds is how often each figure is measured, in turns with the others, and
	// Seconds how long each time.
	Rounds  int
	Seconds float64
	// Pods are how many servers are behind a balancer.
	Pods []int
	// Logs is the folder for the logs of all agents; empty for one that vanishes with
	// the sandbox.
	Logs string
	// Progress is told what goes on.
	Progress io.Writer
}

// step is a case: what it does, in the order in which the default does them.
type step struct {
	name string
	run  func(context.Context, Options, *Result) error
}

var steps = []step{
	{"throughput", throughput},
	{"latency", latency},
	{"balancer", balancer},
	{"slices", attacked},
	{"attachments", attachments},
	{"federation", federation},
}

// Cases names what can be measured.
func Cases() (names []string) {
	for _, s := range steps {
		names = append(names, s.name)
	}
	return names
}

// noRate is how a link without a limit is written.
const noRate = "none"

// DefaultOptions are the experiment as it is quoted.
func DefaultOptions() Options {
	return Options{
		Cases: Cases(), Rates: []string{"1G", "10G", noRate}, Plain: []string{"1G", noRate},
		Rounds: 5, Seconds: 0.8, Pods: []int{1, 4},
	}
}

// mostPods bounds the addresses of servers behind a balancer.
const mostPods = 100

// Validate says which option is wrong.
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
			errs = append(errs, fmt.Errorf("--case: %q is none of %v", name, Cases()))
		}
	}
	for _, text := range o.Rates {
		if _, err := limit(text); err != nil {
			errs = append(errs, fmt.Errorf("--rates: %w", err))
		}
	}
	for _, text := range o.Plain {
		if !slices.Contains(o.Rates, text) {
			errs = append(errs, fmt.Errorf("--plain: %q is none of --rates", text))
		}
	}
	for _, n := range o.Pods {
		if n < 1 || n > mostPods {
			errs = append(errs, fmt.Errorf("--pods: %d is not between 1 and %d", n, mostPods))
		}
	}
	return errors.Join(errs...)
}

// limit reads a rate in bit/s; 0 for none.
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

// Result is a report, and the pictures that belong to it.
type Result struct {
	*bench.Report
	files map[string][]byte // by their names
}

// WriteFiles writes the pictures, and a page of all, into a folder, and gives their
// paths.
func (r *Result) WriteFiles(dir string) ([]string, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	r.files["cni.html"] = page
	return bench.WriteFiles(dir, r.files)
}

// Run measures the cases, one after the other. It needs the sandbox. Where it ends
// with an error, the cases before are in the result.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &Result{Report: bench.New("cni"), files: map[string][]byte{}}
	// Temporary files of whatever is started go with the sandbox, too.
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return r, err
	}
	if o.Logs == "" {
		o.Logs = sandbox.WorkDir
	}
	if o.Plugin == "" {
		r.Note("pods on macvlan and host-device are joined by netlink alone: there was no fairlead-cni beside the binary")
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
		o.say("%s took %s", s.name, time.Since(began).Round(time.Second))
	}
	if left := sandbox.Leftovers(); len(left) > 0 {
		return r, fmt.Errorf("left behind: %v", left)
	}
	return r, nil
}

func (o Options) say(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }

// turn gives the members of a list in the order of a round: each begins one further,
// so that none always comes after the same.
func turn[T any](all []T, round int) []T {
	first := round % len(all)
	return append(slices.Clone(all[first:]), all[:first]...)
}
