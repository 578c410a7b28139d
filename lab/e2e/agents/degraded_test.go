package agents_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refuse"
)

// machine is one node with an interface, and no network around it.
type machine struct {
	*netns.NS
	t      *testing.T
	dir    string
	socket string
}

func newMachine(t *testing.T) *machine {
	l := labtest.Build(t, lab.Topology{
		Hosts: []lab.HostSpec{{Name: "node"}, {Name: "next"}},
		Links: []lab.Link{{A: lab.At("node", "eth0", "10.0.0.2/24").Via("10.0.0.1", "default"), B: lab.At("next", "eth0", "10.0.0.1/24")}},
	})
	dir := t.TempDir()
	return &machine{NS: l.Host("node").Namespace(), t: t, dir: dir, socket: filepath.Join(dir, "agent.sock")}
}

// attached reports whether the interface has an XDP program.
func (m *machine) attached() bool {
	m.t.Helper()
	var out []byte
	testkit.Do(m.t, m.NS, func() (err error) {
		out, err = exec.Command("ip", "link", "show", "eth0").Output()
		return err
	})
	return strings.Contains(string(out), "prog/xdp")
}

// agent starts the agent with a kernel that rejects what rules name; empty rules reject
// nothing. more are flags.
func (m *machine) agent(rules string, more ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	m.t.Helper()
	args := []string{"agent", "--manifest-dir", m.dir, "--role", "balancer,dsr", "--interface", "eth0", "--xdp-mode", "generic", "--socket", m.socket,
		"--bpffs", "/sys/fs/bpf"}
	args = append(args, more...)
	cmd = exec.Command(fixture.Binary, args...)
	if rules != "" {
		cmd = refuse.Command(rules, fixture.Binary, args...)
	}
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	testkit.Do(m.t, m.NS, cmd.Start)
	m.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(unix.SIGTERM)
			_ = cmd.Wait()
		}
	})
	return cmd, stderr
}

// ask runs a command that queries the agent.
func (m *machine) ask(args ...string) (out string, code int) {
	cmd := exec.Command(fixture.Binary, append(args, "--socket", m.socket)...)
	text, _ := cmd.CombinedOutput()
	return string(text), cmd.ProcessState.ExitCode()
}

func (m *machine) ready(stderr *bytes.Buffer) {
	m.t.Helper()
	testkit.Eventually(m.t, fixture.Within, func() error {
		if _, err := status.FetchReady(m.t.Context(), m.socket); err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		return nil
	})
}

// TestRefusedKernelFeatures runs an agent with a kernel that rejects optional features,
// and checks that it does not start if the kernel rejects essential ones.
func TestRefusedKernelFeatures(t *testing.T) {
	m := newMachine(t)
	cmd, stderr := m.agent("map:ringbuf=EPERM helper:perf_event_output=EINVAL attach:tcxingress=EPERM")
	m.ready(stderr)

	out, _ := m.ask("status", "-o", "json")
	var s status.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	reasons := map[string]string{}
	for _, d := range s.Degraded {
		reasons[d.Feature] = d.Reason
	}
	if len(reasons) != 2 || reasons[features.DropEvents] != "EPERM" || reasons[features.Capture] != "EINVAL" {
		t.Errorf("degraded: %v", reasons)
	}
	if out, _ := m.ask("status"); !strings.Contains(out, "`fairlead capture` is not available; helper bpf_perf_event_output: invalid argument (EINVAL)") {
		t.Errorf("status:\n%s", out)
	}
	if out, code := m.ask("capture", "--count", "1", "--output", filepath.Join(m.dir, "out.pcap")); code != 1 || !strings.Contains(out, "capture: helper bpf_perf_event_output: invalid argument (EINVAL)") {
		t.Errorf("capture exits with %d: %s", code, out)
	}
	if out, code := m.ask("drops", "--follow", "--count", "1"); code != 1 || !strings.Contains(out, "map type RingBuf: operation not permitted (EPERM)") {
		t.Errorf("drops exits with %d: %s", code, out)
	}
	_ = cmd.Process.Signal(unix.SIGTERM)
	_ = cmd.Wait()

	cmd, stderr = m.agent("prog:xdp=EPERM")
	err := cmd.Wait()
	last := fixture.LastLine(stderr.String())
	if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(last, "essential feature xdp-programs: program type XDP: operation not permitted (EPERM)") {
		t.Errorf("without XDP it exits with %v: %s", err, stderr)
	}
	if strings.Contains(last, "needs root") {
		t.Errorf("a cause is guessed: %s", last)
	}
	if !m.attached() {
		t.Error("the previous agent's program is no longer attached")
	}
	if _, err := os.Stat(m.socket); err == nil {
		t.Error("the socket was not removed")
	}
	_, stderr = m.agent("")
	m.ready(stderr)
	if out, _ := m.ask("status"); !strings.Contains(out, "degraded    none") {
		t.Errorf("status with all features:\n%s", out)
	}
}
