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

// usage is processor time in seconds, of a while.
type usage struct {
	// machine is all that no processor idled, by hundredths of seconds, and softirq
	// what of it went to packets and timers, by the kernel's clock ticks.
	machine, softirq float64
	// processes is that of the processes asked about, and of the packets that the
	// kernel handled on their account; exact.
	processes float64
}

func (u usage) since(before usage) usage {
	return usage{u.machine - before.machine, u.softirq - before.softirq, u.processes - before.processes}
}

// started is when times are counted from.
var started = time.Now()

// userHz is the unit of /proc/stat, the same on every Linux that Go runs on.
const userHz = 100

// usageOf reads what was used until now, by the machine and by processes.
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
	// What is idle the kernel knows by the nanosecond, what a processor does only by
	// the clock's ticks.
	now := time.Since(started).Seconds() * float64(runtime.NumCPU())
	u := usage{machine: now - ticks[4] - ticks[5] - ticks[8], softirq: ticks[7]}
	for _, pid := range pids {
		var t unix.Timespec
		// The clock of a process of that number: clock_getcpuclockid(3).
		if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
			return u, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		u.processes += time.Duration(t.Nano()).Seconds()
	}
	return u, nil
}
