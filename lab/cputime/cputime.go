// Package cputime reads the CPU time of this process, of others and of the machine, and keeps
// a thread on one CPU, for measurements. Of this process it reads the clocks of the
// scheduler, because some kernels count the times of getrusage in ticks.
package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Thread returns the CPU time of the calling thread.
func Thread() time.Duration { return read(unix.CLOCK_THREAD_CPUTIME_ID) }

// Process returns the CPU time of all threads of this process.
func Process() time.Duration { return read(unix.CLOCK_PROCESS_CPUTIME_ID) }

func read(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // supported since Linux 2.6.12
	}
	return time.Duration(t.Nano())
}
