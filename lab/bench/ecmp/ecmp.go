// Package ecmp is the experiment about the routes between balancers and router:
// how soon the router's kernel has what balancers announce. Reflector and router
// are real processes in network namespaces of their own; a third one speaks for
// all balancers.
package ecmp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/fairlead/fairlead/lab/bench"
)

// Options say what is run.
type Options struct {
	// Binary is the fairlead to run in the lab.
	Binary string
	// Cases are what is measured, by name.
	Cases []string
	// Prefixes and Balancers are the size of the table, Rounds how often each
	// figure is measured.
	Prefixes, Balancers, Rounds int
	// Progress is told what goes on.
	Progress io.Writer
}

// cases are the measurements by name, each in a lab of its own.
var cases = map[string]func(context.Context, Options, *bench.Report) error{
	"table": table,
}

// Cases names what can be measured.
func Cases() []string {
	names := make([]string, 0, len(cases))
	for name := range cases {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// DefaultOptions are the experiment as it is quoted.
func DefaultOptions() Options {
	return Options{Cases: Cases(), Prefixes: 1000, Balancers: 16, Rounds: 5}
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
	for _, name := range o.Cases {
		if cases[name] == nil {
			errs = append(errs, fmt.Errorf("--case: %q is none of %v", name, Cases()))
		}
	}
	return errors.Join(errs...)
}

// Run measures the cases, one after the other.
func Run(ctx context.Context, o Options) (*bench.Report, error) {
	r := bench.New("ecmp")
	for _, name := range o.Cases {
		if err := cases[name](ctx, o, r); err != nil {
			return r, fmt.Errorf("case %s: %w", name, err)
		}
	}
	return r, nil
}
