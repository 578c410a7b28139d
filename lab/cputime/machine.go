package cputime

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is CPU time in seconds over a period.
type Usage struct {
	// Machine is the non-idle time of all CPUs, in hundredths of a second. Softirq is the
	// share of it that packets and timers took, in kernel clock ticks.
	Machine, Softirq float64
	// Processes is the exact time of the given processes, including packets that the
	// kernel handled on their account.
	Processes float64
}

// Since returns what was used after an earlier time.
func (u Usage) Since(before Usage) Usage {
	return Usage{u.Machine - before.Machine, u.Softirq - before.Softirq, u.Processes - before.Processes}
}

// started is the start of the time measurement.
var started = time.Now()

// userHz is the unit of /proc/stat. It is the same on every Linux that Go supports.
const userHz = 100

// Used reads the CPU time used so far by the machine and by processes.
func Used(pids ...int) (Usage, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Usage{}, err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return Usage{}, fmt.Errorf("/proc/stat begins with %q", line)
	}
	// proc_stat(5): cpu user nice system idle iowait irq softirq steal …
	ticks := make([]float64, len(fields))
	for i := 1; i < len(fields); i++ {
		n, err := strconv.ParseUint(string(fields[i]), 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks[i] = float64(n) / userHz
	}
	// The kernel accounts idle time in nanoseconds, but busy time only in clock ticks.
	now := time.Since(started).Seconds() * float64(runtime.NumCPU())
	u := Usage{Machine: now - ticks[4] - ticks[5] - ticks[8], Softirq: ticks[7]}
	for _, pid := range pids {
		var t unix.Timespec
		// The clock ID of a process: see clock_getcpuclockid(3).
		if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
			return u, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		u.Processes += time.Duration(t.Nano()).Seconds()
	}
	return u, nil
}
