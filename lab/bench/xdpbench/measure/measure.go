// Package measure times programs that run on a thread pinned to one CPU, by the CPU time
// of that thread.
package measure

import (
	"encoding/binary"
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

// Counter counts an event of the CPU on the calling thread, if the machine has one.
type Counter struct{ fd int }

// OpenCounter opens one of the generic hardware events of perf_event_open(2).
func OpenCounter(event uint64) (*Counter, error) {
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: event, Size: unix.PERF_ATTR_SIZE_VER0,
	}, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	return &Counter{fd}, err
}

// Read returns the number of events so far.
func (c *Counter) Read() (uint64, error) {
	var count [8]byte
	_, err := unix.Read(c.fd, count[:])
	return binary.NativeEndian.Uint64(count[:]), err
}

// Close closes the counter.
func (c *Counter) Close() error { return unix.Close(c.fd) }
