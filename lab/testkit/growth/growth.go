// Package growth tests that work grows linearly with its input. It compares CPU times
// within one run with each other, never with a limit.
package growth

import (
	"runtime"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/cputime"
)

// rounds is how often each size is measured; the minimum counts.
const rounds = 3

// attempts is how often a ratio that is too high is measured: other processes that use the
// caches slow down the larger size more, and for some time. Quadratic work remains so.
const attempts = 3

// factor is the ratio of the two sizes. allowed is how much more each unit of work may
// cost at the larger size: caches and sorting make it up to twice as much, quadratic work
// factor times.
const (
	factor  = 10
	allowed = 4
)

// Linear fails the test if a unit of work costs more at ten times the size. prepare
// returns the work for a size; it runs several times and must do the same each time.
func Linear(t *testing.T, size int, prepare func(size int) (work func())) {
	t.Helper()
	r := ratio(size, prepare)
	for again := 1; again < attempts && r > allowed; again++ {
		r = ratio(size, prepare)
	}
	if r > allowed {
		t.Errorf("at %d each unit costs %.1f times as much as at %d: the cost grows quadratically", factor*size, r, size)
	} else {
		t.Logf("at %d each unit costs %.1f times as much as at %d", factor*size, r, size)
	}
}

// ratio returns how much more each unit of work costs at ten times the size.
func ratio(size int, prepare func(size int) (work func())) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	works := []struct {
		do     func()
		repeat int // so that both do the same number of units
		least  time.Duration
	}{{do: prepare(size), repeat: factor}, {do: prepare(factor * size), repeat: 1}}
	for round := range 1 + rounds {
		for i := range works {
			w := &works[i]
			runtime.GC()
			began := cputime.Thread()
			for range w.repeat {
				w.do()
			}
			if took := cputime.Thread() - began; round == 1 || round > 1 && took < w.least { // the first round is a warm-up
				w.least = took
			}
		}
	}
	return float64(works[1].least) / float64(max(works[0].least, 1))
}
