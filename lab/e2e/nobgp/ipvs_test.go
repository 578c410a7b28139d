package nobgp_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/uml"
)

// TestIPVS runs the scenarios of an agent with IPVS; if this kernel lacks IPVS, in a
// guest that can access the binary outside.
func TestIPVS(t *testing.T) {
	if uml.HasIPVS() {
		t.Run("imported", func(t *testing.T) { imported(t, "ipvs") })
		t.Run("auto", onIPVS)
		return
	}
	testkit.WatchSources(t)
	o := uml.Options{Limit: 4 * time.Minute, Env: append(os.Environ(), fixture.BinaryVariable+"="+fixture.Binary, "TMPDIR=/tmp")}
	status, err := uml.Run(t.Context(), o, "/proc/1/exe", "-test.run=^TestIPVS$", "-test.v", "-test.timeout=3m30s")
	if err != nil || status != 0 {
		t.Errorf("the tests in the guest exit with %d, %v", status, err)
	}
}

// byHand returns two Services with importNet's backends, one per file.
func byHand(name, vip, method string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: %[1]s
  annotations: {fairlead.io/addresses: %[2]q, fairlead.io/forwarding-mode: %[3]s, fairlead.io/scheduler: rr}
spec:
  type: LoadBalancer
  ports: [{name: http, port: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[1]s
  labels: {kubernetes.io/service-name: %[1]s}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints:
  - {addresses: [172.16.21.2], conditions: {ready: true}}
  - {addresses: [172.16.80.2], conditions: {ready: true}}
`, name, vip, method)
}

// onIPVS checks that with auto the agent falls back to IPVS if XDP cannot run, and
// reports why. Its restart changes nothing and disturbs nobody, also with another version
// (make test-upgrade). A deleted Service leaves nothing behind.
func onIPVS(t *testing.T) {
	l, w, dir := importNet(t), &fixture.World{}, t.TempDir()
	services := filepath.Join(dir, "services")
	err := os.Mkdir(services, 0o755)
	for name, text := range map[string]string{"one": byHand("one", "10.1.1.1", "nat"), "two": byHand("two", "10.1.1.2", "fullnat")} {
		err = errors.Join(err, os.WriteFile(filepath.Join(services, name+".yaml"), []byte(text), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	previous, next := cmp.Or(os.Getenv("FAIRLEAD_PREVIOUS"), fixture.Binary), cmp.Or(os.Getenv("FAIRLEAD_NEXT"), fixture.Binary)
	args := []string{"--balancers", "default/balancers", "--drain-timeout", "20m"}
	start := func(binary, log string) *lab.Process {
		return startImportedOf(t, binary, l, "eth0,eth1,eth2", services, filepath.Join(dir, log), args...)
	}
	agent := start(previous, "agent.log")
	kept := ask{t: t, host: l.Host("client")}
	kept.open(netip.MustParseAddrPort("10.1.1.1:8080"))
	for _, vip := range []string{"10.1.1.1:8080", "10.1.1.2:8080"} {
		fixture.BothAnswer(t, l, netip.MustParseAddrPort(vip))
	}
	w.Eventually(t, "balancer", saysWhyIPVS)
	before := kernelState(t, l)
	for i, binary := range []string{next, previous} {
		// IPVS does not support handover of flows: the agent does not wait for the open
		// one.
		asked := time.Now()
		if err := agent.Stop(fixture.Within); err != nil || time.Since(asked) > fixture.Within/2 {
			t.Errorf("the agent exited after %v: %v", time.Since(asked), err)
		}
		kept.again()
		restarted := time.Now()
		agent = start(binary, fmt.Sprintf("restarted-%d.log", i))
		w.Eventually(t, "balancer", func(s status.Status) error {
			if s.Started.Before(restarted) || len(s.Services) != 2 {
				return fmt.Errorf("started %v, %d Services", s.Started, len(s.Services))
			}
			return saysWhyIPVS(s)
		})
		kept.again()
		if after := kernelState(t, l); after != before && previous == next {
			t.Errorf("the restart changed the kernel's state\nfrom\n%s\nto\n%s", before, after)
		}
	}
	for _, name := range []string{"two", "one"} {
		if err := os.Remove(filepath.Join(services, name+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, fixture.Within, func() error {
		if left := kernelState(t, l); left != "" {
			return fmt.Errorf("remains:\n%s", left)
		}
		return nil
	})
}

func saysWhyIPVS(s status.Status) error {
	if d := s.DataPlane; d == nil || d.Kind != "ipvs" || !strings.Contains(fmt.Sprint(d.Warnings), "XDP does not work here") {
		return fmt.Errorf("data plane %+v, want ipvs and why not XDP", d)
	}
	return nil
}

// kernelState is what Fairlead has programmed in the load balancer's kernel, without
// counters; empty if nothing is programmed.
func kernelState(t *testing.T, l *lab.Lab) string {
	t.Helper()
	var text []byte
	err := l.Host("balancer").Do(func() (err error) {
		// The header of ip_vs has three lines; columns from the fifth on are counters.
		text, err = exec.Command("sh", "-c", `tail -n +4 /proc/thread-self/net/ip_vs | awk '{ print $1, $2, $3, $4 }'
			ip route show table local proto 250
			iptables-legacy-save | grep FAIRLEAD || true`).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return string(text)
}

// ask is a connection that stays open.
type ask struct {
	t      *testing.T
	host   *lab.Host
	conn   net.Conn
	read   *bufio.Reader
	server string
}

// open waits until a VIP is served.
func (a *ask) open(vip netip.AddrPort) {
	a.t.Helper()
	testkit.Eventually(a.t, fixture.Within, func() (err error) {
		_, err = fixture.AskHTTP(a.t.Context(), a.host, vip)
		return err
	})
	var err error
	if a.conn, err = a.host.Dial(a.t.Context(), netip.Addr{}, vip); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { a.conn.Close() })
	a.read = bufio.NewReader(a.conn)
	a.again()
}

// again sends a request over the same connection, which the same backend must answer.
func (a *ask) again() {
	a.t.Helper()
	err := a.conn.SetDeadline(time.Now().Add(fixture.Within))
	if err == nil {
		_, err = fmt.Fprint(a.conn, "GET / HTTP/1.1\r\nHost: vip\r\n\r\n")
	}
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := http.ReadResponse(a.read, nil)
	if err != nil {
		a.t.Fatalf("the open connection: %v", err)
	}
	resp.Body.Close()
	if got := resp.Header.Get(load.ServerHeader); a.server != "" && got != a.server {
		a.t.Errorf("the open connection went from %s to %s", a.server, got)
	} else {
		a.server = got
	}
}
