package cputime

import (
	"runtime"
	"testing"
	"time"
)

// TestAdvances uses CPU time on one thread.
func TestAdvances(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const used = 5 * time.Millisecond
	thread, process := Thread(), Process()
	for Thread()-thread < used {
	}
	if more := Process() - process; more < used {
		t.Errorf("the process used %v while one of its threads used %v", more, used)
	}
}
