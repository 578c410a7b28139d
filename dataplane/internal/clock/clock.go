// Package clock reads the clock of our kernel programs.
package clock

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// TickShift converts nanoseconds to ticks of 1.07 s: FLOW_TICK_SHIFT.
const TickShift = 30

// Now is bpf_ktime_get_coarse_ns.
func Now() time.Duration { return read(unix.CLOCK_MONOTONIC_COARSE) }

// Zero is when bpf_ktime_get_ns was 0, by the current wall clock.
func Zero() time.Time { return time.Now().Add(-read(unix.CLOCK_MONOTONIC)) }

func read(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic(err) // the kernel always has these clocks
	}
	return time.Duration(ts.Nano()) - offset()
}

// offset is what the kernel adds to a monotonic clock for processes in a time namespace,
// but not for its programs (time_namespaces(7)).
var offset = sync.OnceValue(func() time.Duration {
	text, _ := os.ReadFile("/proc/self/timens_offsets") // absent: a kernel without time namespaces
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "monotonic" {
			seconds, _ := strconv.ParseInt(f[1], 10, 64)
			nanoseconds, _ := strconv.ParseInt(f[2], 10, 64)
			return time.Duration(seconds)*time.Second + time.Duration(nanoseconds)
		}
	}
	return 0
})

// Ago returns how long before now a tick began.
func Ago(tick uint32, now time.Duration) time.Duration {
	return max(0, now-time.Duration(tick)<<TickShift)
}
