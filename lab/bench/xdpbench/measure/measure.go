// Package measure times programs that run on a thread pinned to one CPU, by the CPU time
// of that thread.
package measure

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Pinned runs f on a thread pinned to one CPU: the last one that it may run on, because
// interrupts prefer the first.
func Pinned(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for cpu := range 1024 {
		if before.IsSet(cpu) {
			one.Zero()
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}

// ThreadTime returns the CPU time of the calling thread.
func ThreadTime() (time.Duration, error) { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// ProcessTime returns the CPU time of all threads of this process.
func ProcessTime() (time.Duration, error) { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clock(id int32) (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(id, &ts)
	return time.Duration(ts.Nano()), err
}
