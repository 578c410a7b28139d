package nobgp_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/uml"
)

// TestWallClock sets the wall clock of a guest while everything runs; the clock of this
// machine is shared.
func TestWallClock(t *testing.T) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("User Mode Linux")) {
		setClock(t)
		return
	}
	testkit.WatchSources(t)
	o := uml.Options{Limit: 4 * time.Minute, Env: append(os.Environ(), fixture.BinaryVariable+"="+fixture.Binary, "TMPDIR=/tmp")}
	status, err := uml.Run(t.Context(), o, "/proc/1/exe", "-test.run=^TestWallClock$", "-test.v", "-test.timeout=3m30s")
	if err != nil || status != 0 {
		t.Errorf("the test in the guest exits with %d, %v", status, err)
	}
}

// clockPeer uses BFD with intervals that a slow guest can meet.
const clockPeer = `apiVersion: fairlead.io/v1alpha1
kind: BGPPeer
metadata: {name: router}
spec: {peerAddress: 10.0.0.254, bfd: {intervalMilliseconds: 2000}}
`

// clockNet has two load balancers that share one VIP on a segment, and advertise another
// to the router there.
//
//	router 10.0.0.254 ──┐         ┌── lb1 10.0.0.1, lb2 .2
//	client 10.0.0.9   ──┴ switch ─┴── web1 10.0.0.21, web2 .22
type clockNet struct {
	*fixture.World
	t       *testing.T
	lab     *lab.Lab
	dir     string
	servers map[string]*load.Server
}

func newClockNet(t *testing.T) *clockNet {
	t.Helper()
	n := &clockNet{World: &fixture.World{}, t: t, dir: t.TempDir(), servers: map[string]*load.Server{}}
	top := lab.Topology{Switches: []lab.SwitchSpec{{Name: "switch"}}}
	for name, last := range map[string]int{"router": 254, "client": 9, "lb1": 1, "lb2": 2, "web1": 21, "web2": 22} {
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: name})
		top.Links = append(top.Links, lab.Link{A: lab.At(name, "eth0", fmt.Sprintf("10.0.0.%d/24", last)), B: lab.Port("switch")})
	}
	n.lab = labtest.Build(t, top)
	t.Cleanup(func() {
		if t.Failed() {
			n.ShowLogs(t, n.dir)
		}
		for _, left := range []string{cluster.BPFFS(""), filepath.Dir(cluster.Socket("lb1"))} {
			if err := os.RemoveAll(left); err != nil {
				t.Error(err)
			}
		}
	})
	for _, name := range []string{"web1", "web2"} {
		ln, err := n.lab.Host(name).Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		server := load.Serve(name, ln)
		n.servers[name] = server
		t.Cleanup(func() { _ = server.Kill() }) // killing it twice does no harm
	}
	services := filepath.Join(n.dir, "services")
	err := os.Mkdir(services, 0o755)
	for name, text := range map[string]string{"peer": clockPeer, "advertisements": modes("north", "south"), "north": clockService("north", 200), "south": clockService("south", 201)} {
		if err == nil {
			err = os.WriteFile(filepath.Join(services, name+".yaml"), []byte(text), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	n.start("router", "router", "--router-id", "10.0.0.254", "--listen-range", "10.0.0.0/24", "--socket", cluster.Socket("router"))
	for _, name := range []string{"lb1", "lb2"} {
		n.start(name, "agent", "--manifest-dir", services, "--interface", "eth0", "--node", name, "--dataplane", "ipvs",
			"--l2-interfaces", "eth0", "--l2-members", "10.0.0.1,10.0.0.2", "--bpffs", cluster.BPFFS(name), "--socket", cluster.Socket(name))
	}
	return n
}

func clockService(name string, last int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: %[1]s
  labels: {app: %[1]s}
  annotations: {fairlead.io/addresses: 10.0.0.%[2]d, fairlead.io/forwarding-mode: fullnat, fairlead.io/scheduler: rr, fairlead.io/health-check-interval: 500ms, fairlead.io/health-check-timeout: 400ms}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.21]}, {addresses: [10.0.0.22]}]
`, name, last)
}

// start runs fairlead in a host until the test ends.
func (n *clockNet) start(host string, args ...string) {
	n.t.Helper()
	log, err := os.Create(filepath.Join(n.dir, host+".log"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(fixture.Binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if _, err := n.lab.Host(host).Start(cmd); err != nil {
		n.t.Fatal(err)
	}
}

// set moves the wall clock.
func (n *clockNet) set(by time.Duration) {
	n.t.Helper()
	before := time.Now()
	ts := unix.NsecToTimespec(before.Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		n.t.Fatal(err)
	}
	after := time.Now()
	if jumped := after.Round(0).Sub(before.Round(0)) - after.Sub(before); (jumped - by).Abs() > time.Minute {
		n.t.Fatalf("the clock jumped by %v, not %v", jumped, by)
	}
}

// answers waits until exactly this number of backends answers at a VIP, from a host.
func (n *clockNet) answers(from string, vip netip.AddrPort, want int) {
	n.t.Helper()
	testkit.Eventually(n.t, fixture.Within, func() error {
		seen := map[string]bool{}
		for range 6 {
			server, err := fixture.AskHTTP(n.t.Context(), n.lab.Host(from), vip)
			if err != nil {
				return err
			}
			seen[server] = true
		}
		if len(seen) != want {
			return fmt.Errorf("%s is answered by %v, want %d servers", vip, seen, want)
		}
		return nil
	})
}

// steady checks that a load balancer's session is still the same one.
func (n *clockNet) steady(name string) {
	n.t.Helper()
	n.Eventually(n.t, name, func(s status.Status) error {
		for _, p := range s.Peers {
			if p.Name == "router" && (p.State != advertise.Established || p.BFD != "up" || p.Flaps > 0) {
				return fmt.Errorf("%s: %+v", name, p)
			}
		}
		return nil
	})
}

// setClock sets the clock ahead by an hour and back by two, and by a day, during
// continuous requests: no session ends, no route disappears, no backend is considered
// dead, and shutdown, drain and answers after that take their normal time.
func setClock(t *testing.T) {
	n := newClockNet(t)
	north, south := netip.MustParseAddrPort("10.0.0.200:80"), netip.MustParseAddrPort("10.0.0.201:80")
	n.answers("router", north, 2)
	n.answers("client", south, 2)
	n.steady("lb1")
	n.steady("lb2")
	c, err := load.Start(t.Context(), load.Config{Dial: n.lab.Host("router").Dial, Target: north, Timeout: fixture.Within, KeepAlive: 4, KeepAliveRate: 20, OneShotRate: 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	for _, by := range []time.Duration{time.Hour, -2 * time.Hour, 24 * time.Hour, -23 * time.Hour} {
		n.set(by)
		time.Sleep(7 * time.Second) // longer than the BFD detection time; the sum exceeds BGP's hold time
		n.steady("lb1")
		n.steady("lb2")
		n.answers("client", south, 2)
	}
	c.Stop()
	if total := c.Total(); total.Failed+total.BrokenConnections > 0 || total.Requests == 0 {
		t.Errorf("%d requests, %d failed, %d connections broke: %v", total.Requests, total.Failed, total.BrokenConnections, total.Reasons)
	}
	n.fairlead("drain", "--socket", cluster.Socket("lb1")) // with IPVS, connections that move break
	n.set(-time.Hour)
	n.fairlead("drain", "--wait", fixture.Within.String(), "--socket", cluster.Socket("lb1"))
	n.set(time.Hour)
	n.fairlead("undrain", "--wait", fixture.Within.String(), "--socket", cluster.Socket("lb1"))
	n.steady("lb1")
	n.set(-time.Hour)
	if err := n.servers["web2"].Kill(); err != nil {
		t.Fatal(err)
	}
	n.answers("router", north, 1)
	n.answers("client", south, 1)
}

// fairlead runs a command that must succeed.
func (n *clockNet) fairlead(args ...string) {
	n.t.Helper()
	if _, errs, code := n.Fairlead(n.t, "", args...); code != 0 {
		n.t.Fatalf("fairlead %v exits with %d: %s", args, code, errs)
	}
}
