package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/sim/report"
)

// TestInterruptKeepsWhatThereIs sends SIGINT to the binary, which TestMain has put into
// the PATH, during runs that would take hours: it must write its partial results, report
// that, and fail.
func TestInterruptKeepsWhatThereIs(t *testing.T) {
	long := strings.NewReplacer("SERVERS", "{name: web, count: 2}", "duration: 1s", "duration: 20h\ninterval: 60s", "rate: 100", "rate: 2000").
		Replace(smallScenario) + "services: [{name: web, servers: web}]\n"
	for name, args := range map[string][]string{
		"scenario":   {"sim", "run", write(t, "small.yaml", long)},
		"experiment": {"sim", "run", "tail", "--small", "--seeds", "1000"},
		"figures":    {"sim", "run", "fig8", "--seeds", "500", "--workers", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			cmd := exec.Command("fairlead-lab", append(args, "--out", dir, "-o", "json")...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill() //nolint:errcheck // it has ended
			for {                    // until it has worked for a while
				if used := cpuOf(t, cmd.Process.Pid); used > 400*time.Millisecond {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("%v, want exit code 1: %s", err, &errs)
			}
			if !strings.Contains(errs.String(), "interrupted: partial results are in "+dir) {
				t.Errorf("output: %q", &errs)
			}
			var r report.Report
			if err := json.Unmarshal(out.Bytes(), &r); err != nil || !r.Interrupted || len(r.Figures)+len(r.Experiments) != 1 {
				t.Errorf("%v: %s", err, &out)
			}
			written, err := os.ReadFile(filepath.Join(dir, "report.html"))
			if err != nil || !strings.Contains(strings.ToLower(string(written)), "interrupted") {
				t.Errorf("%v: the page does not show the interruption", err)
			}
			if name == "scenario" && len(r.Experiments[0].Tables) == 0 {
				t.Error("the results of the first seed are missing")
			}
		})
	}
}

// cpuOf returns the CPU time of a process so far.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	var ticks time.Duration // of 10 ms each, user and system
	for _, field := range strings.Fields(after)[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}
