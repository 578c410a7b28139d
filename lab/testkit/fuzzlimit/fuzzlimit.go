// Package fuzzlimit limits the time that one input of a fuzz target may take. Only tests
// may import it.
package fuzzlimit

import (
	"runtime/debug"
	"testing"
	"time"
)

// most is far more than any input of a fuzzer needs, even on a busy machine with coverage
// and the race detector.
const most = 20 * time.Second

// Time ends the process if the test still runs after 20 s. Go's fuzzer does not report an
// input that hangs: it kills the worker at the end of -fuzztime. With the panic, the
// input is stored as a failure.
func Time(t testing.TB) {
	timer := time.AfterFunc(most, func() {
		debug.SetTraceback("all")
		panic("one input takes longer than " + most.String())
	})
	t.Cleanup(func() { timer.Stop() })
}
