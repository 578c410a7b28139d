package chain

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/flows"
	"github.com/fairlead/fairlead/lab/flows/flowstest"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Ports of the Service that the proxy serves.
const (
	nodePort, echoNodePort = 30080, 30053
	echoPort               = 5353
)

// upgrade is an environment whose components change from one version to another, and the
// traffic that must not be affected.
type upgrade struct {
	*world
	cgroup    string
	http      map[string]*load.Client
	datagrams map[string]*flows.Flows
}

// proxied creates a Service with a cluster address and node ports.
func (u *upgrade) proxied(t *testing.T) netip.Addr {
	t.Helper()
	const cluster = "10.96.7.7"
	must(t, u.Apply(t.Context(), fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: inner}
spec:
  type: NodePort
  clusterIP: %s
  ports:
    - {name: http, port: 80, targetPort: %d, nodePort: %d}
    - {name: echo, port: 53, protocol: UDP, targetPort: %d, nodePort: %d}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: inner-1, labels: {kubernetes.io/service-name: inner}}
addressType: IPv4
ports: [{name: http, port: %d}, {name: echo, port: %d, protocol: UDP}]
endpoints:
  - {addresses: [%s], nodeName: s1, conditions: {ready: true}}
  - {addresses: [%s], nodeName: s2, conditions: {ready: true}}
`, cluster, serverPort, nodePort, echoPort, echoNodePort, serverPort, echoPort, hosts["s1"], hosts["s2"])))
	return netip.MustParseAddr(cluster)
}

// proxy starts the service proxy of w1.
func (u *upgrade) proxy(t *testing.T) {
	t.Helper()
	kubeconfig, err := u.KubeconfigFor("system:serviceaccount:fairlead:fairlead-agent")
	must(t, err)
	u.start(t, "w1", "w1", "agent", "--kubernetes", "--kubeconfig", kubeconfig, "--node", "w1", "--role", "proxy",
		"--cgroup", u.cgroup, "--node-port-addresses", hosts["w1"].String()+"/32", "--health-address", "",
		"--bpffs", filepath.Join("/sys/fs/bpf", "w1"), "--socket", socket("w1"))
	testkit.Eventually(t, within, func() error {
		s, err := status.Fetch(t.Context(), socket("w1"))
		if err != nil {
			return err
		}
		if s.ServiceProxy == nil || !s.ServiceProxy.Synced {
			return errors.New("the service proxy is not in sync")
		}
		return nil
	})
}

// traffic starts requests through load balancers (from outside), through the proxy's
// packet programs (from outside to a node port) and through its socket programs (from the
// node itself).
func (u *upgrade) traffic(t *testing.T, vip, cluster netip.Addr) {
	t.Helper()
	flowstest.Answer(t, u.lab, netip.AddrPortFrom(netip.IPv4Unspecified(), echoPort), "s1", "s2")
	for name, way := range map[string]struct {
		host     string
		to       netip.AddrPort
		oneShots float64
	}{
		"balancers": {"client", netip.AddrPortFrom(vip, 80), 30},
		"packets":   {"client", netip.AddrPortFrom(hosts["w1"], nodePort), 30},
		"sockets":   {"w1", netip.AddrPortFrom(cluster, 80), 30},
	} {
		c, err := load.Start(t.Context(), load.Config{
			Dial: u.lab.Host(way.host).Dial, Target: way.to, OneShotRate: way.oneShots, KeepAlive: 20, KeepAliveRate: 40, Timeout: 20 * time.Second,
		})
		must(t, err)
		t.Cleanup(c.Stop)
		must(t, c.Settle(t.Context()))
		u.http[name] = c
	}
	for name, way := range map[string]struct {
		host     string
		from, to netip.AddrPort
	}{
		"datagrams as packets": {"client", netip.MustParseAddrPort("192.0.2.10:0"), netip.AddrPortFrom(hosts["w1"], echoNodePort)},
		"datagrams of sockets": {"w1", netip.AddrPortFrom(hosts["w1"], 0), netip.AddrPortFrom(cluster, 53)},
	} {
		u.datagrams[name] = flowstest.Open(t, u.lab, way.host, way.from.Addr(), way.to, 20)
	}
}

// unharmed calls do while all traffic flows, and fails the test if a connection breaks or
// a UDP flow moves to another backend.
func (u *upgrade) unharmed(t *testing.T, what string, do func()) {
	t.Helper()
	marks := map[string]load.Mark{}
	for name, c := range u.http {
		marks[name] = c.Mark()
	}
	step := do
	for name, f := range u.datagrams {
		before, inner := flowstest.Ask(t, f), step
		step = func() {
			if moved, err := f.During(before, inner); moved > 0 || err != nil {
				t.Errorf("%s: %s: %d flows came to another server, or to none: %v", what, name, moved, err)
			}
		}
	}
	step()
	for name, c := range u.http {
		must(t, c.Settle(t.Context()))
		if n := c.Since(marks[name]); n.Failed+n.BrokenConnections > 0 || n.Requests == 0 {
			t.Errorf("%s: %s: %d requests, %d failed, %d connections broke: %v", what, name, n.Requests, n.Failed, n.BrokenConnections, n.Reasons)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// to makes every component run a version, one at a time.
func (u *upgrade) to(t *testing.T, version, binary string, vip netip.Addr) {
	t.Helper()
	u.binary = binary
	step := func(name string, start func()) {
		u.unharmed(t, name+" to "+version, func() {
			must(t, u.processes[name].Stop(within))
			start()
		})
	}
	step("one", func() { u.control(t, "one") })
	for _, name := range []string{"n1", "n2"} {
		step(name, func() {
			u.agent(t, name)
			u.routed(t, vip, "n1", "n2")
		})
	}
	for _, name := range []string{"s1", "s2"} {
		step(name, func() {
			u.agent(t, name)
			u.says(t, name, false, "have not been read")
		})
	}
	step("w1", func() { u.proxy(t) })

	// While there is no API server, the cached state of the previous version is all there
	// is.
	u.kept(t, "n1", vip)
	u.unharmed(t, "the API server is away", func() { must(t, u.APIServer.Stop()) })
}

// back starts the API server again.
func (u *upgrade) back(t *testing.T) {
	t.Helper()
	u.unharmed(t, "the API server is back", func() {
		must(t, u.APIServer.Start(t.Context()))
		u.says(t, "n1", false, "cannot be read")
	})
}

// TestUpgrade upgrades a cluster's components from the version in FAIRLEAD_PREVIOUS to
// this one, or to that in FAIRLEAD_NEXT, and downgrades them, one at a time; also a load
// balancer without an API server.
func TestUpgrade(t *testing.T) {
	previous, next := os.Getenv("FAIRLEAD_PREVIOUS"), cmp.Or(os.Getenv("FAIRLEAD_NEXT"), binary)
	if previous == "" {
		t.Skip("make test-upgrade FROM=COMMIT runs it")
	}
	u := &upgrade{cgroup: testkit.EnterCgroup(t), http: map[string]*load.Client{}, datagrams: map[string]*flows.Flows{}}
	u.world = newWorldOf(t, previous)
	vip := u.serving(t, "web", "s1", "s2")
	cluster := u.proxied(t)
	u.proxy(t)
	u.traffic(t, vip, cluster)
	u.unharmed(t, "nothing", func() { time.Sleep(time.Second) })
	for _, v := range []struct{ name, binary, before string }{{"N+1", next, previous}, {"N", previous, next}} {
		u.to(t, v.name, v.binary, vip)
		// Across versions: each starts from the state that the other one cached.
		u.binary = v.before
		u.unharmed(t, "n1 begins with what "+v.name+" has kept", func() {
			must(t, u.processes["n1"].Signal(syscall.SIGKILL))
			<-u.processes["n1"].Done()
			u.agent(t, "n1")
			u.routed(t, vip, "n1", "n2")
			u.says(t, "n1", true, "what its predecessor read last")
		})
		u.binary = v.binary
		u.unharmed(t, "n1 to "+v.name+" again", func() {
			must(t, u.processes["n1"].Stop(within))
			u.agent(t, "n1")
			u.routed(t, vip, "n1", "n2")
		})
		u.back(t)
	}
}
