package papers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/bench"
)

// Options configures a run.
type Options struct {
	// Only selects rows; empty means all.
	Only   Selection
	Length Length
	// Repetitions is how often each experiment runs; 0 means twice, but once if it is short
	// and takes more than two minutes.
	Repetitions int
	// Dir is the folder for the report and for the results of each repetition. Fresh
	// repeats what is there already.
	Dir   string
	Fresh bool
	// Binary and Plugin are the fairlead and fairlead-cni binaries to run.
	Binary, Plugin string
	Progress       io.Writer
}

// Validate reports which options are invalid.
func (o Options) Validate() error {
	errs := []error{o.Only.Validate()}
	if !slices.Contains(Lengths, o.Length) {
		errs = append(errs, fmt.Errorf("--length: %q is not one of %v", o.Length, Lengths))
	}
	if o.Repetitions < 0 || o.Repetitions > maxRepetitions {
		errs = append(errs, fmt.Errorf("--repetitions: %d is not between 0 and %d", o.Repetitions, maxRepetitions))
	}
	return errors.Join(errs...)
}

const maxRepetitions = 100

// quick is how long a short experiment takes at most to run twice by default. Many of these
// have one sample of each quantity, and a verdict needs two.
const quick = 2 * time.Minute

// repetitions returns how often an experiment runs.
func (o Options) repetitions(e Experiment) int {
	switch {
	case o.Repetitions > 0:
		return o.Repetitions
	case e.Takes > quick && o.Length == Short:
		return 1
	}
	return 2
}

// NeedsRoot reports whether a selected experiment needs root and the sandbox, and is not
// measured yet.
func (o Options) NeedsRoot() bool {
	for _, e := range experimentsOf(o.Only) {
		for n := range o.repetitions(e) {
			if e.Root && (o.Fresh || load(o.Dir, o.Length, e.Name, n+1) == nil) {
				return true
			}
		}
	}
	return false
}

// Programs returns the programs of Kubernetes that the selected experiments need.
func (o Options) Programs() (all []string) {
	for _, e := range experimentsOf(o.Only) {
		all = append(all, e.Kubernetes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Run runs the experiments of the selected rows that have no results yet, and returns the
// report about everything that has. An experiment that fails twice does not end the run.
// The error names those that failed.
func Run(ctx context.Context, o Options) (*Report, error) {
	wanted := experimentsOf(o.Only)
	failed := map[string]error{}
	for i, e := range wanted {
		all := o.repetitions(e)
		for n := 1; n <= all && failed[e.Name] == nil && ctx.Err() == nil; n++ {
			o.logf("%d/%d: %s, repetition %d of %d (short: about %.0f min)", i+1, len(wanted), e.Name, n, all, e.Takes.Minutes())
			if err := o.twice(ctx, e, n); err != nil && ctx.Err() == nil {
				failed[e.Name] = err
				o.logf("  %v", err)
			}
		}
	}
	report := o.report(failed)
	if ctx.Err() != nil {
		return report, fmt.Errorf("interrupted: the next run continues with the results in %s", o.Dir)
	}
	var errs []error
	for _, e := range wanted {
		if err := failed[e.Name]; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Name, err))
		}
	}
	return report, errors.Join(errs...)
}

// twice runs a repetition, and once more if that fails: one bad moment in an hour is not to
// cost an experiment. Its rows name the first failure.
func (o Options) twice(ctx context.Context, e Experiment, repetition int) error {
	first := o.once(ctx, e, repetition, "")
	if first == nil || ctx.Err() != nil {
		return first
	}
	o.logf("  %v\n  once more", first)
	return o.once(ctx, e, repetition, first.Error())
}

// once runs a repetition if it has no result yet. failure is that of an attempt before.
func (o Options) once(ctx context.Context, e Experiment, repetition int, failure string) error {
	m := &Measured{Experiment: e.Name, Repetition: repetition, Started: time.Now().UTC().Truncate(time.Second)}
	if earlier := load(o.Dir, o.Length, e.Name, repetition); earlier != nil && !o.Fresh {
		if e.Name != simulator || len(earlier.lacking(o.Only)) == 0 {
			o.logf("  measured at %s", earlier.Started.Format(time.DateTime))
			return nil
		}
		m = earlier // and only the other figures
	}
	m.made(version.String())
	m.Failure = cmp.Or(failure, m.Failure)
	m.Machine, m.Kernel = bench.Machine(), version.Release()
	began := time.Now()
	if err := e.run(ctx, o, m); err != nil {
		return err
	}
	m.Seconds += time.Since(began).Seconds()
	return m.save(o.Dir, o.Length)
}

func (o Options) logf(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }
