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

// Figures are all of the paper that show a result, but Fig. 24, whose caption is
// that of Fig. 23 and of which the text says nothing; and variants of ours, which
// are named for what they are variants of and stand behind it.
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

// Options say how figures are run.
type Options struct {
	Clock Clock
	Seeds int // 1, 2, … up to this
	// Workers run at once.
	Workers int
	// Progress is told how many runs are done; nil for nobody.
	Progress func(done, total int)
}

// job is a run.
type job struct {
	setup Setup
	seed  uint32
}

// jobs gives every run that figures need, once: all of one seed before those of
// the next, so that there is something whole after an interruption.
func jobs(figures []Figure, seeds int) (all []job) {
	seen := map[job]bool{}
	for seed := range uint32(seeds) {
		for _, f := range figures {
			for _, s := range f.setups() {
				if j := (job{s, seed + 1}); !seen[j] {
					seen[j] = true
					all = append(all, j)
				}
			}
		}
	}
	return all
}

// Run runs figures. Where the context ends before, the report has what there is,
// and says so.
func Run(ctx context.Context, figures []Figure, o Options) (*Report, error) {
	all := jobs(figures, o.Seeds)
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
