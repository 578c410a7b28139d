package nobgp_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
)

// The configuration of keepalived and of the kernel; the first is what the papers'
// controller writes ("A portable load balancer for Kubernetes", Fig. 4).
const (
	keepalivedConf = `virtual_server fwmark 1 {
    delay_loop 5
    lb_algo lc
    lb_kind NAT
    protocol TCP
    real_server 172.16.21.2 80 {
        uthreshold 20000
        TCP_CHECK {
            connect_timeout 5
            connect_port 80
        }
    }
    real_server 172.16.80.2 80 {
        uthreshold 20000
        TCP_CHECK {
            connect_timeout 5
            connect_port 80
        }
    }
}
`
	ipvsRules = `-A -t 10.1.1.2:8080 -s rr
-a -t 10.1.1.2:8080 -r 172.16.21.2:80 -m -w 1
-a -t 10.1.1.2:8080 -r 172.16.80.2:80 -m -w 1
`
)

// importNet is LVS's own network, with the load balancer as the backends' gateway:
//
//	client 192.0.2.2 ── eth0 balancer eth1 ── 172.16.21.2 web1
//	                                  eth2 ── 172.16.80.2 web2
func importNet(t *testing.T) *lab.Lab {
	t.Helper()
	l := labtest.Build(t, lab.Topology{
		Hosts: []lab.HostSpec{{Name: "client"}, {Name: "balancer", Forward: true}, {Name: "web1"}, {Name: "web2"}},
		Links: []lab.Link{
			{A: lab.At("client", "eth0", "192.0.2.2/24").Via("192.0.2.1", "default").ForXDP(), B: lab.At("balancer", "eth0", "192.0.2.1/24")},
			{A: lab.At("web1", "eth0", "172.16.21.2/24").Via("172.16.21.1", "default").ForXDP(), B: lab.At("balancer", "eth1", "172.16.21.1/24")},
			{A: lab.At("web2", "eth0", "172.16.80.2/24").Via("172.16.80.1", "default").ForXDP(), B: lab.At("balancer", "eth2", "172.16.80.1/24")},
		},
	})
	for _, name := range []string{"web1", "web2"} {
		ln, err := l.Host(name).Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		server := load.Serve(name, ln)
		t.Cleanup(func() {
			if err := server.Kill(); err != nil {
				t.Error(err)
			}
		})
	}
	return l
}

// TestImported balances real connections with the unmodified imported configuration.
func TestImported(t *testing.T) {
	testkit.WatchSources(t)
	imported(t, "xdp")
}

func imported(t *testing.T, dataPlane string) {
	l, w, dir := importNet(t), &fixture.World{}, t.TempDir()
	services := filepath.Join(dir, "services")
	for name, text := range map[string]string{"keepalived.conf": keepalivedConf, "rules": ipvsRules} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"import", "keepalived", filepath.Join(dir, "keepalived.conf"), "--mark", "1=10.1.1.1:81", "--output-dir", services},
		{"import", "ipvsadm", filepath.Join(dir, "rules"), "--output-dir", services},
	} {
		if _, errs, code := w.Fairlead(t, "", args...); code != 0 {
			t.Fatalf("%s exits with %d: %s", args, code, errs)
		}
	}
	startImported(t, l, "eth0,eth1,eth2", services, filepath.Join(dir, "agent.log"), "--dataplane", dataPlane)
	w.Eventually(t, "balancer", func(s status.Status) error {
		if len(s.Problems) > 0 || len(s.Services) != 2 || s.DataPlane.Kind != dataPlane {
			return fmt.Errorf("%d Services on %v, problems %v", len(s.Services), s.DataPlane, s.Problems)
		}
		return nil
	})
	for _, vip := range []string{"10.1.1.1:81", "10.1.1.2:8080"} {
		fixture.BothAnswer(t, l, netip.MustParseAddrPort(vip))
	}
}

// startImported starts a load balancer's agent that runs until the test ends.
func startImported(t *testing.T, l *lab.Lab, interfaces, services, logFile string, args ...string) *lab.Process {
	t.Helper()
	return startImportedOf(t, fixture.Binary, l, interfaces, services, logFile, args...)
}

// startImportedOf starts the agent of another fairlead.
func startImportedOf(t *testing.T, binary string, l *lab.Lab, interfaces, services, logFile string, args ...string) *lab.Process {
	t.Helper()
	log, err := os.Create(logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(binary, append([]string{"agent", "--manifest-dir", services, "--interface", interfaces,
		"--bpffs", cluster.BPFFS("balancer"), "--socket", cluster.Socket("balancer")}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := l.Host("balancer").Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Stop(fixture.Within) // its exit status is checked by other tests
		if text, err := os.ReadFile(logFile); t.Failed() {
			t.Logf("the agent: %v\n%s", err, text)
		}
		for _, left := range []string{cluster.BPFFS(""), filepath.Dir(cluster.Socket("balancer"))} {
			if err := os.RemoveAll(left); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}
