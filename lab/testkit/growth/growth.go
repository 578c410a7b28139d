// Package growth tests that work grows linearly with its input. It compares CPU times
// within one run with each other, never with a limit.
package growth

import (
	"runtime"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/cputime"
)

// rounds is how often each size is measured at most; the minimum counts. A ratio of at most
// plain needs no more than one.
const rounds = 3

// attempts is how often a ratio that is too high is measured: other processes that use the
// caches slow down the larger size more, and for some time. Quadratic work remains so.
const attempts = 3

// factor is the ratio of the two sizes. allowed is how much more each unit of work may
// cost at the larger size: caches and sorting make it up to twice as much (plain),
// quadratic work factor times.
const (
	factor  = 10
	plain   = 2
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
func ratio(size int, prepare func(size int) (work func())) (r float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	small, large := prepare(size), prepare(factor*size)
	small() // warm up
	large()
	var least [2]time.Duration
	for round := range rounds {
		for i, took := range []time.Duration{cpuTime(small, factor), cpuTime(large, 1)} { // as many units each
			if round == 0 || took < least[i] {
				least[i] = took
			}
		}
		if r = float64(least[1]) / float64(max(least[0], 1)); r <= plain {
			break
		}
	}
	return r
}

// cpuTime returns the CPU time of repeated work.
func cpuTime(work func(), repeat int) time.Duration {
	runtime.GC()
	began := cputime.Thread()
	for range repeat {
		work()
	}
	return cputime.Thread() - began
}
