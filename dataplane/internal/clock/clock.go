// Package clock is the clock of the programs that remember flows.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// TickShift makes ticks of nanoseconds, 1.07 s each: FLOW_TICK_SHIFT.
const TickShift = 30

// Now is bpf_ktime_get_coarse_ns.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
		panic(err) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}

// Ago is how long before now a tick began.
func Ago(tick uint32, now time.Duration) time.Duration {
	return max(0, now-time.Duration(tick)<<TickShift)
}
