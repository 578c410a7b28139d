package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Options configures how experiments are run.
type Options struct {
	Seeds int // the seeds are 1 to Seeds
	// Workers is the number of parts of a seed that run concurrently. It does not affect
	// the results.
	Workers int
	// Small selects the variants that take seconds.
	Small bool
	// Set overrides parameters by name.
	Set map[string]float64
	// Progress receives the total progress, from 0 to 1. It may be nil.
	Progress func(part float64)
}

// Check rejects parameters that no experiment has, or that are out of bounds.
func (o *Options) Check(all []Experiment) error {
	var errs []error
	for name, value := range o.Set {
		var known []string
		found := false
		for i := range all {
			for _, p := range all[i].Params {
				known = append(known, p.Name)
				if p.Name != name {
					continue
				}
				found = true
				if !(value >= p.Least && value <= p.Most) {
					errs = append(errs, fmt.Errorf("%s: parameter %s: %v is not from %v to %v", all[i].Name, name, value, p.Least, p.Most))
				}
			}
		}
		if !found {
			slices.Sort(known)
			have := strings.Join(slices.Compact(known), ", ")
			errs = append(errs, fmt.Errorf("unknown parameter %s: the selected experiments have %s", name, cmp.Or(have, "none")))
		}
	}
	return errors.Join(errs...)
}

// values returns an experiment's parameters.
func (e *Experiment) values(small bool, set map[string]float64) map[string]float64 {
	all := map[string]float64{}
	for _, p := range e.Params {
		all[p.Name] = p.Full
		if small {
			all[p.Name] = p.Small
		}
		if v, ok := set[p.Name]; ok {
			all[p.Name] = v
		}
	}
	return all
}

// RunAll runs all seeds of each experiment, one after the other. If the context ends
// before, interrupted is true and the outcomes contain the complete seeds.
func RunAll(ctx context.Context, experiments []Experiment, o Options) (outcomes []Outcome, interrupted bool, err error) {
	steps := float64(len(experiments) * o.Seeds)
	for i := range experiments {
		e := &experiments[i]
		params := e.values(o.Small, o.Set)
		var results, partial []*Result
		for seed := range o.Seeds {
			before := float64(i*o.Seeds + seed)
			run := &Run{Context: ctx, Seed: uint32(seed + 1), params: params, workers: o.Workers, done: func(part float64) {
				if o.Progress != nil {
					o.Progress((before + part) / steps)
				}
			}}
			result, err := e.Run(run)
			if ctx.Err() != nil {
				if len(results) == 0 && result != nil { // partial results are better than none
					partial = append(partial, result)
				}
				break
			}
			if err != nil {
				return nil, false, fmt.Errorf("%s, seed %d: %w", e.Name, seed+1, err)
			}
			results = append(results, result)
			run.done(1)
		}
		outcome, err := e.outcome(params, results, partial)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", e.Name, err)
		}
		outcomes = append(outcomes, outcome)
		interrupted = interrupted || len(results) < o.Seeds
	}
	return outcomes, interrupted, nil
}

// Each runs the n parts of a seed, several concurrently, and returns the error of the
// first part that failed, by number. Parts must not share mutable state, so that the
// result does not depend on the number of workers.
func (r *Run) Each(n int, part func(i int) error) error {
	errs := make([]error, n)
	var next, done atomic.Int64
	var lock sync.Mutex
	var workers sync.WaitGroup
	for range max(1, min(r.workers, n)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && r.Context.Err() == nil; i = next.Add(1) - 1 {
				errs[i] = part(int(i))
				lock.Lock()
				r.done(float64(done.Add(1)) / float64(n))
				lock.Unlock()
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return r.Context.Err()
}
