package kubeproxy

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/kube"
)

// subject is a service proxy under measurement.
type subject interface {
	name() string
	program() *kube.Program
	// complete reports whether the kernel has as many entries as the cluster has
	// Services. It is polled.
	complete() (bool, error)
	// verify compares the kernel's contents with what was seeded.
	verify() error
	// held reports for each pair whether the kernel has it.
	held(all []pair) ([]bool, error)
	// pause is the polling interval, chosen so that polling costs little.
	pause() time.Duration
	// clear removes everything from the kernel that a stopped proxy left there.
	clear() error
}

// startUnready starts a program and does not wait until it is ready.
func startUnready(ctx context.Context, p *kube.Program) error {
	p.Ready = func(context.Context) error { return nil }
	return p.Start(ctx)
}

// ticks is the number of clock ticks of /proc per second (USER_HZ).
const ticks = 100

// cpuOf returns the CPU time of a program, including its children that have ended.
func cpuOf(p *kube.Program) (time.Duration, error) {
	pid, err := p.PID()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// proc_pid_stat(5): utime, stime, cutime and cstime are the 12th to 15th fields after
	// the name in parentheses.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	var sum int64
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// residentOf returns the peak and the current memory of a program, in MB.
func residentOf(p *kube.Program) (most, now float64, err error) {
	pid, err := p.PID()
	if err != nil {
		return 0, 0, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch name {
		case "VmHWM":
			most = kib * 1024 / 1e6
		case "VmRSS":
			now = kib * 1024 / 1e6
		}
	}
	if most == 0 || now == 0 {
		return 0, 0, fmt.Errorf("/proc/%d/status has no VmHWM or no VmRSS", pid)
	}
	return most, now, nil
}

// await polls until done returns true. It fails if the program ends or the time limit is
// exceeded.
func await(ctx context.Context, p *kube.Program, what string, limit, pause time.Duration, done func() (bool, error)) error {
	for deadline := time.Now().Add(limit); ; {
		ok, err := done()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ok {
			return nil
		}
		if _, err := p.PID(); err != nil {
			return fmt.Errorf("%s: %w; last output:\n%s", what, err, p.LastWords())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s; last output of %s:\n%s", what, limit, p.Name(), p.LastWords())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
