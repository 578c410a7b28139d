// Package measure times programs by the CPU time of the thread that runs them.
package measure

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

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
