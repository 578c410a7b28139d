package agents_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/e2e/internal/world"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/internal/testkit/refuse"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/status"
)

// machine is one node with an interface, and nothing around it.
type machine struct {
	*netns.NS
	t      *testing.T
	dir    string
	socket string
}

func newMachine(t *testing.T) *machine {
	m := &machine{NS: testkit.NetNS(t), t: t, dir: t.TempDir()}
	m.socket = filepath.Join(m.dir, "agent.sock")
	testkit.Do(t, m.NS, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "net0"}); err != nil {
			return err
		}
		for _, name := range []string{"eth0", "net0"} {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(l); err != nil {
				return err
			}
			if name == "eth0" {
				addr, _ := netlink.ParseAddr("10.0.0.2/24")
				if err := netlink.AddrAdd(l, addr); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return m
}

// agent starts the agent where the kernel refuses what rules name; no rules, no
// refusal.
func (m *machine) agent(rules string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	m.t.Helper()
	args := []string{"agent", "--services", m.dir, "--role", "balancer,server", "--interface", "eth0", "--socket", m.socket,
		"--metrics", "127.0.0.1:9370", "--bpffs", "/sys/fs/bpf"}
	cmd = exec.Command(world.Binary, args...)
	if rules != "" {
		cmd = refuse.Command(rules, world.Binary, args...)
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

// ask runs a command that asks the agent.
func (m *machine) ask(args ...string) (out string, code int) {
	cmd := exec.Command(world.Binary, append(args, "--socket", m.socket)...)
	text, _ := cmd.CombinedOutput()
	return string(text), cmd.ProcessState.ExitCode()
}

func (m *machine) ready() {
	m.t.Helper()
	testkit.Eventually(m.t, time.Minute, func() error {
		_, err := status.FetchReady(m.t.Context(), m.socket)
		return err
	})
}

// TestRefusedKernelFeatures has an agent run where the kernel refuses what is
// optional, and not start where it refuses what is essential.
func TestRefusedKernelFeatures(t *testing.T) {
	m := newMachine(t)
	cmd, _ := m.agent("map:ringbuf=EPERM helper:perf_event_output=EINVAL attach:tcxingress=EPERM")
	m.ready()

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
	if out, code := m.ask("capture", "--count", "1"); code != 1 || !strings.Contains(out, "capture: helper bpf_perf_event_output: invalid argument (EINVAL)") {
		t.Errorf("capture ends with %d: %s", code, out)
	}
	if out, code := m.ask("drops", "--follow", "--count", "1"); code != 1 || !strings.Contains(out, "map type RingBuf: operation not permitted (EPERM)") {
		t.Errorf("drops ends with %d: %s", code, out)
	}
	_ = cmd.Process.Signal(unix.SIGTERM)
	_ = cmd.Wait()

	cmd, stderr := m.agent("prog:xdp=EPERM")
	err := cmd.Wait()
	last := world.LastLine(stderr.String())
	if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(last, "essential feature xdp-programs: program type XDP: operation not permitted (EPERM)") {
		t.Errorf("without XDP it ends with %v: %s", err, stderr)
	}
	if strings.Contains(last, "needs root") {
		t.Errorf("a cause is guessed: %s", last)
	}
	attached := false
	testkit.Do(t, m.NS, func() error {
		l, err := netlink.LinkByName("eth0")
		attached = err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
		return err
	})
	if !attached {
		t.Error("the previous agent's program is no longer attached")
	}
	if _, err := os.Stat(m.socket); err == nil {
		t.Error("the socket is left behind")
	}
	m.agent("")
	m.ready()
	if out, _ := m.ask("status"); !strings.Contains(out, "degraded    none") {
		t.Errorf("status once nothing is refused:\n%s", out)
	}
}
