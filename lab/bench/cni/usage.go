package cni

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// usage is CPU time in seconds over a period.
type usage struct {
	// machine is the non-idle time of all CPUs, in hundredths of a second. softirq is the
	// share of it that packets and timers took, in kernel clock ticks.
	machine, softirq float64
	// processes is the exact time of the given processes, including packets that the
	// kernel handled on their account.
	processes float64
}

func (u usage) since(before usage) usage {
	return usage{u.machine - before.machine, u.softirq - before.softirq, u.processes - before.processes}
}

// started is the start of the time measurement.
var started = time.Now()

// userHz is the unit of /proc/stat. It is the same on every Linux that Go supports.
const userHz = 100

// usageOf reads the CPU time used so far by the machine and by processes.
func usageOf(pids ...int) (usage, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return usage{}, err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return usage{}, fmt.Errorf("/proc/stat begins with %q", line)
	}
	// proc_stat(5): cpu user nice system idle iowait irq softirq steal …
	ticks := make([]float64, len(fields))
	for i := 1; i < len(fields); i++ {
		n, err := strconv.ParseUint(string(fields[i]), 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks[i] = float64(n) / userHz
	}
	// The kernel accounts idle time in nanoseconds, but busy time only in clock ticks.
	now := time.Since(started).Seconds() * float64(runtime.NumCPU())
	u := usage{machine: now - ticks[4] - ticks[5] - ticks[8], softirq: ticks[7]}
	for _, pid := range pids {
		var t unix.Timespec
		// The clock ID of a process: see clock_getcpuclockid(3).
		if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
			return u, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		u.processes += time.Duration(t.Nano()).Seconds()
	}
	return u, nil
}
