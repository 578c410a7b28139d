package cputime

import (
	"errors"
	"runtime"

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
