package chain

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/interop"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refuse"
	"github.com/fairlead/fairlead/source/object"
)

// within is how long any step may take on a busy machine.
const within = time.Minute

// binary is the fairlead under test, built once.
var binary = filepath.Join(sandbox.WorkDir, "bin", "fairlead")

func TestMain(m *testing.M) {
	refuse.Init()
	if sandbox.Inside("test") {
		if err := testkit.Build(binary); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	kube.Main(m)
}

// The network. Packets to Services' addresses come from the client through the router;
// answers go straight back to the client.
//
//	client 192.0.2.10 ── router 10.0.0.254 ──┐
//	control plane      cp 10.0.0.10 ─────────┤
//	balancers     n1, n2  10.0.0.1, .2 ──────┤ lan
//	servers       s1, s2  10.0.0.21, .22 ────┤
//	service proxy     w1  10.0.0.31 ─────────┘
const routerAddr = "10.0.0.254"

// hosts are the hosts on the segment except the router.
var hosts = map[string]netip.Addr{
	"cp": netip.MustParseAddr("10.0.0.10"),
	"n1": netip.MustParseAddr("10.0.0.1"), "n2": netip.MustParseAddr("10.0.0.2"),
	"s1": netip.MustParseAddr("10.0.0.21"), "s2": netip.MustParseAddr("10.0.0.22"), "w1": netip.MustParseAddr("10.0.0.31"),
}

func topology() lab.Topology {
	t := lab.Topology{
		Hosts:    []lab.HostSpec{{Name: "client"}, {Name: "router", Forward: true, Sysctls: map[string]string{"net.ipv4.fib_multipath_hash_policy": "1"}}},
		Switches: []lab.SwitchSpec{{Name: "lan"}},
		Links: []lab.Link{
			{A: lab.At("client", "eth0", "192.0.2.10/24").Via("192.0.2.1", "default").ForXDP(), B: lab.At("router", "eth1", "192.0.2.1/24")},
			{A: lab.At("router", "eth0", routerAddr+"/24").ForXDP(), B: lab.Port("lan").ForXDP()},
		},
	}
	for name, addr := range hosts {
		t.Hosts = append(t.Hosts, lab.HostSpec{Name: name})
		t.Links = append(t.Links, lab.Link{A: lab.At(name, "eth0", addr.String()+"/24").Via(routerAddr, "default").ForXDP(), B: lab.Port("lan").ForXDP()})
	}
	return t
}

// world is everything that runs, with methods to inspect and disturb it.
type world struct {
	*kube.Cluster
	api    kubernetes.Interface
	lab    *lab.Lab
	router *interop.Daemon
	logs   string
	binary string // of processes that are started

	processes map[string]*lab.Process
	servers   map[string]*load.Server
}

// newWorld starts everything except Services.
func newWorld(t *testing.T) *world { t.Helper(); return newWorldOf(t, binary) }

// newWorldOf starts it with another fairlead.
func newWorldOf(t *testing.T, binary string) *world {
	t.Helper()
	testkit.WatchSources(t)
	w := &world{binary: binary, logs: t.TempDir(), processes: map[string]*lab.Process{}, servers: map[string]*load.Server{}}
	var err error
	w.lab, err = lab.Build(t.Context(), topology())
	must(t, err)
	t.Cleanup(func() { w.close(t) })
	w.Cluster = kube.Start(t, kube.Options{Host: w.lab.Host("cp").Namespace(), Address: hosts["cp"], EtcdRelay: true, Logs: w.logs})
	w.api, err = kubernetes.NewForConfig(w.Config)
	must(t, err)
	w.install(t)
	w.route(t)
	w.control(t, "one")
	for _, name := range []string{"n1", "n2", "s1", "s2"} {
		w.agent(t, name)
	}
	for _, name := range []string{"s1", "s2"} {
		w.serve(t, name)
	}
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// install creates the objects in deploy/ that a cluster needs, the nodes, and an
// administrator's configuration of addresses and routers.
func (w *world) install(t *testing.T) {
	t.Helper()
	for _, pattern := range []string{"manifests/namespace.yaml", "crds/*.yaml", "manifests/rbac.yaml"} {
		files, err := filepath.Glob("../../../deploy/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			must(t, err)
			must(t, w.Apply(t.Context(), string(text)))
		}
	}
	for name := range hosts {
		must(t, w.Apply(t.Context(), "{apiVersion: v1, kind: Node, metadata: {name: "+name+"}}"))
	}
	must(t, w.Apply(t.Context(), `
apiVersion: fairlead.io/v1alpha1
kind: AddressPool
metadata: {name: pool}
spec: {addresses: [10.1.1.1-10.1.1.9]}
---
apiVersion: fairlead.io/v1alpha1
kind: BGPPeer
metadata: {name: router}
spec: {peerAddress: `+routerAddr+`, bfd: {enabled: false}} # a busy machine stands still for longer than BFD waits
`))
}

// route starts the router.
func (w *world) route(t *testing.T) {
	t.Helper()
	var err error
	w.router, err = interop.Start(w.lab.Host("router").Namespace(), interop.BIRD, interop.Config{
		AS: 65021, RouterID: netip.MustParseAddr(routerAddr), LocalAddress: netip.MustParseAddr(routerAddr),
		Peers: []interop.Peer{{Address: hosts["n1"]}, {Address: hosts["n2"]}},
	})
	must(t, err)
}

// start starts fairlead on a host, under a name.
func (w *world) start(t *testing.T, host, name string, args ...string) {
	t.Helper()
	log, err := os.OpenFile(w.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, err)
	defer log.Close()
	cmd := exec.Command(w.binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	w.processes[name], err = w.lab.Host(host).Start(cmd)
	must(t, err)
}

func (w *world) log(name string) string { return filepath.Join(w.logs, name+".log") }

// agent starts the agent of a host, with the rights in deploy/, and with more flags.
func (w *world) agent(t *testing.T, name string, flags ...string) {
	t.Helper()
	kubeconfig, err := w.KubeconfigFor("system:serviceaccount:fairlead:fairlead-agent")
	must(t, err)
	role := map[byte]string{'n': "balancer", 's': "dsr"}[name[0]]
	w.start(t, name, name, append([]string{"agent", "--kubernetes", "--kubeconfig", kubeconfig, "--node", name, "--role", role,
		"--bpffs", filepath.Join("/sys/fs/bpf", name), "--socket", socket(name)}, flags...)...)
}

func socket(name string) string { return filepath.Join(sandbox.WorkDir, name+".sock") }

// leaseFor is how long the Lease of a dead controller blocks the others.
const leaseFor = 3 * time.Second

func (w *world) control(t *testing.T, name string) {
	t.Helper()
	kubeconfig, err := w.KubeconfigFor("system:serviceaccount:fairlead:fairlead-controller")
	must(t, err)
	w.start(t, "cp", name, "controller", "--kubeconfig", kubeconfig, "--identity", name,
		"--lease-duration", leaseFor.String(), "--status-interval", "200ms")
}

// kill ends a process without warning.
func (w *world) kill(t *testing.T, name string) {
	t.Helper()
	must(t, w.processes[name].Kill())
	<-w.processes[name].Done()
}

const serverPort = 8080

func (w *world) serve(t *testing.T, name string) {
	t.Helper()
	l, err := w.lab.Host(name).Listen("tcp4", fmt.Sprintf("%s:%d", hosts[name], serverPort))
	must(t, err)
	w.servers[name] = load.Serve(name, l)
}

// close stops everything; what kube.Start has started stops earlier.
func (w *world) close(t *testing.T) {
	for name, p := range w.processes {
		if err := p.Stop(10 * time.Second); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Errorf("%s exits with %v", name, err)
		}
		if t.Failed() {
			text, _ := os.ReadFile(w.log(name))
			lines := strings.Split(string(text), "\n")
			t.Logf("%s:\n%s", name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	}
	if w.router != nil {
		if t.Failed() {
			t.Logf("router:\n%s", w.router.Log())
		}
		must(t, w.router.Stop())
	}
	var errs []error
	for _, s := range w.servers {
		errs = append(errs, s.Kill())
	}
	if err := errors.Join(append(errs, w.lab.Close())...); err != nil {
		t.Error(err)
	}
}

// service creates a Service of type LoadBalancer, with more annotations: "name: value".
func (w *world) service(t *testing.T, name string, annotations ...string) {
	t.Helper()
	must(t, w.Apply(t.Context(), `
apiVersion: v1
kind: Service
metadata: {name: `+name+`, annotations: {`+strings.Join(append(annotations, "fairlead.io/health-check-interval: 200ms", "fairlead.io/health-check-timeout: 200ms"), ", ")+`}}
spec: {type: LoadBalancer, ports: [{name: http, port: 80, targetPort: `+fmt.Sprint(serverPort)+`}]}
`))
}

// endpoints sets the hosts that serve a Service.
func (w *world) endpoints(t *testing.T, name string, of ...string) {
	t.Helper()
	must(t, w.tryEndpoints(t, name, of...))
}

func (w *world) tryEndpoints(t *testing.T, name string, of ...string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var all []string
	for _, host := range of {
		all = append(all, fmt.Sprintf("{addresses: [%s], nodeName: %s, conditions: {ready: true}}", hosts[host], host))
	}
	return w.Apply(ctx, fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-1, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [%s]
`, name, name, serverPort, strings.Join(all, ", ")))
}

// address waits for a Service's address.
func (w *world) address(t *testing.T, name string) (vip netip.Addr) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		s, err := w.api.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) != 1 {
			return fmt.Errorf("%s has no address: %+v", name, s.Status)
		}
		vip, err = netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
		return err
	})
	return vip
}

// reported waits until the conditions of a Service begin so: what load balancers report.
func (w *world) reported(t *testing.T, name, want string) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		s, err := w.api.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, of := range []string{object.ConditionProgrammed, object.ConditionAdvertised} {
			c := meta.FindStatusCondition(s.Status.Conditions, of)
			if c == nil {
				return fmt.Errorf("%s has no condition %s", name, of)
			}
			if got := fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message); !strings.HasPrefix(got, want) {
				return fmt.Errorf("%s of %s is %q, want %q", of, name, got, want)
			}
		}
		return nil
	})
}

// hops returns the load balancers that are next hops for an address in the router's
// kernel, which BIRD writes, sorted.
func (w *world) hops(vip netip.Addr) (names []string, err error) {
	all, err := w.lab.Host("router").Netlink().RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Dst == nil || r.Dst.String() != vip.String()+"/32" || r.Protocol != unix.RTPROT_BIRD {
			continue
		}
		by := []string{r.Gw.String()}
		for _, h := range r.MultiPath {
			by = append(by, h.Gw.String())
		}
		for name, addr := range hosts {
			if slices.Contains(by, addr.String()) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// routed waits until the router's next hops for an address are exactly these.
func (w *world) routed(t *testing.T, vip netip.Addr, by ...string) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		have, err := w.hops(vip)
		if err == nil && !slices.Equal(have, by) {
			err = fmt.Errorf("the router sends %s by %v, want %v", vip, have, by)
		}
		return err
	})
}

// answered waits until exactly these backends answer requests, and none fails.
func (w *world) answered(t *testing.T, vip netip.Addr, by ...string) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		c, err := load.Start(t.Context(), load.Config{
			Dial: w.lab.Host("client").Dial, Target: netip.AddrPortFrom(vip, 80), OneShotRate: 200, MaxRequests: 40, Timeout: 2 * time.Second,
		})
		if err != nil {
			return err
		}
		for c.Total().Requests < 40 {
			time.Sleep(10 * time.Millisecond)
		}
		c.Stop()
		counts := c.Total()
		for _, name := range by {
			if counts.PerServer[name] == 0 {
				err = fmt.Errorf("%s has answered nothing: %v, %v", name, counts.PerServer, counts.Reasons)
			}
		}
		if len(counts.PerServer) != len(by) || counts.Failed > 0 {
			err = fmt.Errorf("answered by %v, %d failed %v; want %v", counts.PerServer, counts.Failed, counts.Reasons, by)
		}
		return err
	})
}

// says waits until an agent's status has, or no longer has, a problem with these words.
func (w *world) says(t *testing.T, agent string, has bool, words string) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		s, err := status.Fetch(t.Context(), socket(agent))
		if err != nil {
			return err
		}
		if has != slices.ContainsFunc(s.Problems, func(p problem.Problem) bool { return strings.Contains(p.Object+": "+p.Message, words) }) {
			return fmt.Errorf("%s says %q; want %q: %v", agent, s.Problems, words, has)
		}
		return nil
	})
}

// traffic is continuous requests, and a watch on the route that they need.
type traffic struct {
	*load.Client
	stop func() (missing time.Duration)
}

// flow starts traffic to an address. It detects any time without a route, however short.
func (w *world) flow(t *testing.T, vip netip.Addr, host string) *traffic {
	t.Helper()
	c, err := load.Start(t.Context(), load.Config{
		Dial: w.lab.Host("client").Dial, Target: netip.AddrPortFrom(vip, 80), OneShotRate: 30, KeepAlive: 10, KeepAliveRate: 20, Timeout: 20 * time.Second,
	})
	must(t, err)
	t.Cleanup(c.Stop)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	var missing time.Duration
	watching.Go(func() {
		const pause = 20 * time.Millisecond
		for ctx.Err() == nil {
			if by, err := w.hops(vip); err != nil || !slices.Contains(by, host) {
				missing += pause
			}
			time.Sleep(pause)
		}
	})
	return &traffic{c, func() time.Duration { cancel(); watching.Wait(); return missing }}
}

// unhurt ends the traffic, and fails the test if anything was lost.
func (tr *traffic) unhurt(t *testing.T, what string) {
	t.Helper()
	tr.Stop()
	if missing := tr.stop(); missing > 0 {
		t.Errorf("%s: the route was away for %s", what, missing)
	}
	c := tr.Total()
	if c.Failed+c.BrokenConnections+c.Skipped > 0 || c.Requests == 0 {
		t.Errorf("%s: %d requests, %d failed, %d connections broke, %d were not opened: %v",
			what, c.Requests, c.Failed, c.BrokenConnections, c.Skipped, c.Reasons)
	}
	t.Logf("%s: %d requests, %d failed, %d connections broke", what, c.Requests, c.Failed, c.BrokenConnections)
}

// drop deletes a Service with its slice.
func (w *world) drop(t *testing.T, name string) {
	t.Helper()
	must(t, w.api.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	must(t, w.api.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), name+"-1", metav1.DeleteOptions{}))
}
