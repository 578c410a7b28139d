package lvs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Figures returns the numbers in the text of the paper, all of its figures that show a
// result, and variants, which are named after the figure that they vary and follow it.
func Figures() []Figure {
	all := slices.Concat(figures100(), figures1000(), figuresSchedulers(), figuresHierarchy())
	slices.SortFunc(all, func(a, b Figure) int { return cmp.Or(cmp.Compare(a.number(), b.number()), cmp.Compare(a.Name, b.Name)) })
	return all
}

func (f *Figure) number() int {
	digits, _, _ := strings.Cut(strings.TrimPrefix(f.Name, "fig"), "-")
	n, _ := strconv.Atoi(digits)
	return n
}

// Options configures how figures are run.
type Options struct {
	Clock Clock
	// The seeds are Skip+1 to Skip+Seeds.
	Skip, Seeds int
	// Workers is the number of concurrent runs.
	Workers int
	// Progress receives the number of completed runs. It may be nil.
	Progress func(done, total int)
}

// job is one run.
type job struct {
	setup Setup
	seed  uint32
}

// job returns the run of a setup for a seed.
func (s Setup) job(seed uint32) job {
	if s.Seed > 0 {
		seed = s.Seed
	}
	return job{s, seed}
}

// jobs returns every run that figures need, once. All runs of one seed come before those
// of the next, so that an interrupted run has complete seeds.
func jobs(figures []Figure, o Options) (all []job) {
	seen := map[job]bool{}
	for seed := range uint32(o.Seeds) {
		for _, f := range figures {
			for _, s := range f.setups() {
				if j := s.job(uint32(o.Skip) + seed + 1); !seen[j] {
					seen[j] = true
					all = append(all, j)
				}
			}
		}
	}
	return all
}

// Run runs figures. If the context ends before, the report contains the available results
// and is marked as interrupted.
func Run(ctx context.Context, figures []Figure, o Options) (*Report, error) {
	all := jobs(figures, o)
	results := make([]*Result, len(all))
	var next, done atomic.Int64
	var failed error
	var lock sync.Mutex
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var workers sync.WaitGroup
	for range max(1, o.Workers) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				r, err := all[i].setup.Run(ctx, o.Clock, all[i].seed)
				lock.Lock()
				if err != nil && !errors.Is(err, context.Canceled) && failed == nil {
					failed = err
					stop()
				}
				results[i] = r
				if r != nil && o.Progress != nil {
					o.Progress(int(done.Add(1)), len(all))
				}
				lock.Unlock()
			}
		})
	}
	workers.Wait()
	if failed != nil {
		return nil, failed
	}
	cache := map[job]*Result{}
	for i, j := range all {
		cache[j] = results[i]
	}
	return report(figures, o, cache), nil
}
