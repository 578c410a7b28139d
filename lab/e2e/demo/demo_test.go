package demo_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
)

// demo runs fairlead-lab demo like a terminal, in its own session and process group. The
// tests' sandbox is the machine that it runs on. Clients and backends are part of that
// process: if other tests and compilers delayed it, load balancers would correctly
// consider the backends dead.
type demo struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	lines  chan string // of stderr
	said   strings.Builder
}

func startDemo(t *testing.T) *demo {
	t.Helper()
	d := &demo{lines: make(chan string, 10000)}
	d.cmd = exec.Command(fixture.Lab(t), "demo", "--json", "--duration", "15s", "--report", filepath.Join(fixture.Ground, "demo.html"))
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	d.cmd.Stdout = &d.stdout
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(d.cmd.Process.Pid, unix.SIGKILL) })
	if err := lab.SessionGoesFirst(d.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.lines)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			d.lines <- in.Text()
		}
	}()
	return d
}

// until reads the demo's output until a line has these words. It returns io.EOF if the
// demo ends first.
func (d *demo) until(t *testing.T, words string) error {
	t.Helper()
	limit := time.After(4 * fixture.Within)
	for {
		select {
		case line, ok := <-d.lines:
			if !ok {
				return io.EOF
			}
			fmt.Fprintln(&d.said, line)
			if words != "" && strings.Contains(line, words) {
				return nil
			}
		case <-limit:
			t.Fatalf("the demo did not print %q; output:\n%s", words, d.said.String())
		}
	}
}

// machine returns kernel settings that a demo could change. testkit.NoLeftovers checks
// for everything else.
func machine(t *testing.T) map[string]string {
	t.Helper()
	settings := map[string]string{}
	err := filepath.WalkDir("/proc/sys/net", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_count") { // the number of connections, and similar counters
			return err
		}
		if text, err := os.ReadFile(path); err == nil { // some are write-only
			settings[path] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

// untouched fails the test if a demo has left anything.
func untouched(t *testing.T, before map[string]string) {
	t.Helper()
	testkit.NoLeftovers(t)
	after := machine(t)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			t.Errorf("%s was %q and is %q", name, before[name], after[name])
		}
	}
	if len(after) != len(before) {
		t.Errorf("there were %d settings and are %d", len(before), len(after))
	}
}

// TestDemo runs the complete demo. Convergence times require an idle machine; what may be
// lost is the same on all.
func TestDemo(t *testing.T) {
	testkit.WatchSources(t)
	before := machine(t)
	d := startDemo(t)
	if err := d.until(t, ""); err != io.EOF {
		t.Fatal(err)
	}
	d.cmd.Wait() //nolint:errcheck // says no on a busy machine, where convergence takes longer
	untouched(t, before)

	var r struct {
		Version, Kernel, Report string
		Services                []struct {
			Name, VIP, Method, Scheduler string
			Port                         int
			Balancers, NextHops          []string
		}
		Load struct {
			Requests, Failed       uint64
			PerServer, PerBalancer map[string]uint64
		}
		Events []struct {
			Name                                string
			StartedMs, ConvergedMs              float64
			Requests, Failed, BrokenConnections uint64
		}
		Leftovers []string
		Passed    *bool
	}
	in := json.NewDecoder(&d.stdout)
	if err := in.Decode(&r); err != nil {
		t.Fatalf("stdout is not a JSON object: %v; stderr:\n%s", err, d.said.String())
	}
	if rest, _ := io.ReadAll(io.MultiReader(in.Buffered(), &d.stdout)); len(bytes.TrimSpace(rest)) > 0 {
		t.Errorf("stdout has more than one object: %q", rest)
	}
	if r.Version == "" || r.Kernel == "" || r.Passed == nil || r.Leftovers == nil || len(r.Leftovers) > 0 {
		t.Errorf("version %q, kernel %q, passed %v, leftovers %v", r.Version, r.Kernel, r.Passed, r.Leftovers)
	}
	if html, err := os.ReadFile(r.Report); err != nil || !bytes.Contains(html, []byte(`<figure class="chart">`)) {
		t.Errorf("the report %q has no plot: %v", r.Report, err)
	}
	for i, want := range []int{3, 2} { // one is added, three removed, and one added because losing one takes two
		if len(r.Services) != 2 {
			t.Fatalf("services %+v", r.Services)
		}
		s := r.Services[i]
		if s.Name == "" || s.VIP == "" || s.Port != 80 || s.Method != "tunnel" || s.Scheduler != "maglev" ||
			len(s.Balancers) == 0 || len(s.Balancers) > want || len(s.NextHops) != len(s.Balancers) {
			t.Errorf("service %+v", s)
		}
	}
	if r.Load.Requests == 0 || len(r.Load.PerServer) != 5 || len(r.Load.PerBalancer) < 4 {
		t.Errorf("load %+v", r.Load)
	}
	lossless := []string{"add-balancer", "remove-balancer", "add-server", "drain-server"}
	events := []string{"add-balancer", "remove-balancer", "kill-balancer", "cut-balancer", "add-server", "drain-server", "kill-server"}
	var names []string
	for _, e := range r.Events {
		names = append(names, e.Name)
		if e.ConvergedMs < 0 || e.Requests == 0 {
			t.Errorf("%s: converged %v ms, %d requests", e.Name, e.ConvergedMs, e.Requests)
		}
		if slices.Contains(lossless, e.Name) && e.Failed+e.BrokenConnections > 0 {
			t.Errorf("%s cost %d requests and %d connections", e.Name, e.Failed, e.BrokenConnections)
		}
		if e.Failed > e.Requests/10 {
			t.Errorf("%s cost %d of %d requests", e.Name, e.Failed, e.Requests)
		}
	}
	if !slices.Equal(names, events) {
		t.Errorf("events %v, want %v", names, events)
	}
	if t.Failed() {
		t.Log(d.said.String())
	}
}

// TestDemoEndsWithoutTrace ends the demo early, by Ctrl-C and by SIGKILL.
func TestDemoEndsWithoutTrace(t *testing.T) {
	testkit.WatchSources(t)
	before := machine(t)
	for _, c := range []struct {
		name   string
		after  string // its last output
		signal unix.Signal
		group  bool
	}{
		{"ctrl-C at once", "Building", unix.SIGINT, true},
		{"ctrl-C while balancers start", "one balancer", unix.SIGINT, true},
		{"ctrl-C under load", "requests/s", unix.SIGINT, true},
		{"killed while building", "Building", unix.SIGKILL, false},
		{"killed under load", "requests/s", unix.SIGKILL, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := startDemo(t)
			if err := d.until(t, c.after); err != nil {
				t.Fatalf("%v; output:\n%s", err, d.said.String())
			}
			pid := d.cmd.Process.Pid
			if c.group {
				pid = -pid
			}
			if err := unix.Kill(pid, c.signal); err != nil {
				t.Fatal(err)
			}
			if err := d.until(t, ""); err != io.EOF {
				t.Fatal(err)
			}
			d.cmd.Wait() //nolint:errcheck // it was signalled to exit
			if code := d.cmd.ProcessState.ExitCode(); code == 0 {
				t.Error("exit code 0 after a signal")
			}
			if c.signal == unix.SIGINT && !strings.Contains(d.said.String(), "interrupted") {
				t.Errorf("the output does not mention the interruption:\n%s", d.said.String())
			}
			untouched(t, before)
		})
	}
}
