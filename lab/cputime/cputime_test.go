package cputime

import (
	"os"
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

// TestUsageCountsWork burns CPU time, which must show up in both figures.
func TestUsageCountsWork(t *testing.T) {
	pid := os.Getpid()
	before, err := Used(pid)
	if err != nil {
		t.Fatal(err)
	}
	for n, until := 0, time.Now().Add(20*time.Second); time.Now().Before(until); n++ {
		got, err := Used(pid)
		if err != nil {
			t.Fatal(err)
		}
		if used := got.Since(before); used.Processes > 0.2 {
			if used.Machine < 0.15 {
				t.Errorf("%+v: the machine worked less than a process of it", used)
			}
			return
		}
	}
	t.Error("20 s of work took less than 0.2 s of processor time")
}
