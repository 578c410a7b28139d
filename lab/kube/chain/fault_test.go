package chain

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/lab/testkit"
)

// outage is how long the API server is unavailable: FAIRLEAD_OUTAGE, as set by make
// test-outage.
func outage(t *testing.T) time.Duration {
	text := os.Getenv("FAIRLEAD_OUTAGE")
	if text == "" {
		return 5 * time.Second
	}
	d, err := time.ParseDuration(text)
	must(t, err)
	return d
}

// agents are all agents.
var agents = []string{"n1", "n2", "s1", "s2"}

// serverAway stops the API server for a long time. Agents keep serving, detect by
// themselves which backends answer, and report the problem. An agent that restarts begins
// with its cached state. If that is too old, it leaves the kernel as it is and advertises
// nothing. Then the API server returns, without its history.
func (w *world) serverAway(t *testing.T) {
	vip := w.serving(t, "web", "s1", "s2")
	tr := w.flow(t, vip, "n2")
	w.kept(t, "n1", vip, "s1", "s2")
	pid, err := w.APIServer.PID()
	must(t, err)
	began := time.Now()
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	for _, name := range agents {
		w.says(t, name, true, "services: cannot be read")
	}
	w.routed(t, vip, "n1", "n2")

	w.kill(t, "n1")
	w.routed(t, vip, "n2")
	long := time.Now().Add(-25 * time.Hour)
	must(t, os.Chtimes(keptBy("n1"), long, long))
	w.by(t, vip, "n1", func() { // whose kernel still forwards
		w.answered(t, vip, "s1", "s2")
		w.agent(t, "n1")
		w.says(t, "n1", true, "the kernel state stays unchanged and nothing is advertised")
		w.says(t, "n1", true, "services: cannot be read")
		w.answered(t, vip, "s1", "s2")
	})
	w.routed(t, vip, "n2")
	w.kill(t, "n1")
	must(t, os.Chtimes(keptBy("n1"), began, began))
	w.agent(t, "n1")
	w.says(t, "n1", true, "what its predecessor read last, at "+began.UTC().Format(time.RFC3339))
	w.says(t, "n1", true, "services: cannot be read")
	w.routed(t, vip, "n1", "n2")
	w.by(t, vip, "n1", func() { w.answered(t, vip, "s1", "s2") })
	time.Sleep(time.Until(began.Add(outage(t))))
	w.routed(t, vip, "n1", "n2")
	w.answered(t, vip, "s1", "s2")

	must(t, w.APIServer.Stop()) // it has exited
	must(t, w.Compact(t.Context()))
	must(t, w.APIServer.Start(t.Context()))
	w.routed(t, vip, "n1", "n2")
	for _, name := range agents {
		w.says(t, name, false, "cannot be read")
		w.says(t, name, false, "have not been read")
	}
	tr.unhurt(t, "the API server was away")
	w.endpoints(t, "web", "s2") // changes are followed again, and written
	w.answered(t, vip, "s2")
	w.drop(t, "web")
	w.routed(t, vip)
}

// keptBy is the cache file of an agent that starts without an API server.
func keptBy(agent string) string { return socket(agent) + ".kept" }

// kept waits until an agent has cached a Service with its address and backends: it writes at most
// every ten seconds.
func (w *world) kept(t *testing.T, agent string, vip netip.Addr, by ...string) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		text, err := os.ReadFile(keptBy(agent))
		if err == nil && !strings.Contains(string(text), vip.String()) {
			return fmt.Errorf("%s has not cached %s", agent, vip)
		}
		for _, name := range by {
			if err == nil && !strings.Contains(string(text), hosts[name].String()) {
				err = fmt.Errorf("%s has not cached %s", agent, name)
			}
		}
		return err
	})
}

// healthAlone restarts all load balancers, and lets a backend fail, while the API server
// is unavailable.
func (w *world) healthAlone(t *testing.T) {
	vip := w.serving(t, "web", "s1", "s2")
	balancers := []string{"n1", "n2"}
	for _, name := range balancers {
		w.kept(t, name, vip, "s1", "s2")
	}
	must(t, w.APIServer.Stop())
	for _, name := range balancers {
		w.kill(t, name)
	}
	w.routed(t, vip)
	for _, name := range balancers {
		w.agent(t, name)
	}
	w.routed(t, vip, balancers...)
	w.answered(t, vip, "s1", "s2")
	must(t, w.servers["s1"].Kill())
	w.answered(t, vip, "s2")
	w.serve(t, "s1")
	w.answered(t, vip, "s1", "s2")
	must(t, w.APIServer.Start(t.Context()))
	w.drop(t, "web")
	w.routed(t, vip)
}

// slowStore delays the traffic between API server and etcd, and then cuts it for a while.
func (w *world) slowStore(t *testing.T) {
	vip := w.serving(t, "web", "s1", "s2")
	tr := w.flow(t, vip, "n1")
	w.EtcdRelay.Delay(150 * time.Millisecond)
	shop := w.serving(t, "shop", "s1")
	w.answered(t, shop, "s1")
	w.EtcdRelay.Cut(true)
	w.endpointsFail(t, "shop")
	w.EtcdRelay.Cut(false)
	w.EtcdRelay.Delay(0)
	testkit.Eventually(t, within, func() error { return w.tryEndpoints(t, "shop", "s2") })
	w.answered(t, shop, "s2")
	tr.unhurt(t, "etcd was slow, and then away")
	w.drop(t, "web")
	w.drop(t, "shop")
	w.routed(t, vip)
	w.routed(t, shop)
}

// endpointsFail checks that nothing can be written.
func (w *world) endpointsFail(t *testing.T, name string) {
	t.Helper()
	if err := w.tryEndpoints(t, name, "s2"); err == nil {
		t.Error("a change is accepted without etcd")
	}
}

// noRights removes the agents' rights while they run.
func (w *world) noRights(t *testing.T) {
	vip := w.serving(t, "web", "s1", "s2")
	tr := w.flow(t, vip, "n1")
	bindings := w.api.RbacV1().ClusterRoleBindings()
	was, err := bindings.Get(t.Context(), "fairlead-agent", metav1.GetOptions{})
	must(t, err)
	must(t, bindings.Delete(t.Context(), was.Name, metav1.DeleteOptions{}))
	must(t, w.APIServer.Stop()) // which ends their watches
	must(t, w.APIServer.Start(t.Context()))
	for _, name := range agents {
		w.says(t, name, true, "let this agent get, list and watch services (ClusterRole)")
		w.says(t, name, true, `User "system:serviceaccount:fairlead:fairlead-agent" cannot`)
	}
	w.routed(t, vip, "n1", "n2")
	w.answered(t, vip, "s1", "s2")
	tr.unhurt(t, "the agents had no rights")
	w.endpoints(t, "web", "s2")
	was.ResourceVersion = ""
	_, err = bindings.Create(t.Context(), was, metav1.CreateOptions{})
	must(t, err)
	w.answered(t, vip, "s2")
	for _, name := range agents {
		w.says(t, name, false, "cannot be read")
	}
	w.drop(t, "web")
	w.routed(t, vip)
}

// twoControllers pauses the leader, and resumes it when another leads.
func (w *world) twoControllers(t *testing.T) {
	w.control(t, "two")
	vip := w.serving(t, "web", "s1")
	for _, name := range []string{"one", "two"} {
		must(t, w.processes[name].Signal(syscall.SIGSTOP))
		other := w.serving(t, "while-"+name+"-stands", "s2")
		if other == vip {
			t.Errorf("two Services have %s", vip)
		}
		must(t, w.processes[name].Signal(syscall.SIGCONT))
		w.logged(t, name, "lost leadership")
	}
	w.kill(t, "one")
	third := w.serving(t, "third", "s1")
	all, err := w.api.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	owner := map[string]string{}
	for _, s := range all.Items {
		for _, in := range s.Status.LoadBalancer.Ingress {
			if first := owner[in.IP]; first != "" {
				t.Errorf("%s and %s have %s", first, s.Name, in.IP)
			}
			owner[in.IP] = s.Name
		}
	}
	if len(owner) != 4 {
		t.Errorf("addresses: %v, want four", owner)
	}
	for _, name := range owner {
		w.drop(t, name)
	}
	for _, gone := range []netip.Addr{vip, third} {
		w.routed(t, gone)
	}
	w.kill(t, "two")
	w.control(t, "one")
}

// serving creates a Service and waits until both load balancers serve it.
func (w *world) serving(t *testing.T, name string, by ...string) netip.Addr {
	t.Helper()
	w.service(t, name)
	w.endpoints(t, name, by...)
	vip := w.address(t, name)
	w.routed(t, vip, "n1", "n2")
	w.answered(t, vip, by...)
	return vip
}

// by calls do while the router sends packets for an address only to one load balancer,
// whatever that one advertises.
func (w *world) by(t *testing.T, vip netip.Addr, host string, do func()) {
	t.Helper()
	route := &netlink.Route{Dst: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(32, 32)}, Gw: hosts[host].AsSlice(), Priority: 1, Protocol: 4 /* static */}
	router := w.lab.Host("router").Netlink()
	must(t, router.RouteAdd(route))
	defer func() { must(t, router.RouteDel(route)) }()
	do()
}

// logged waits for words in a process's log.
func (w *world) logged(t *testing.T, name, words string) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		text, err := os.ReadFile(w.log(name))
		if err == nil && !strings.Contains(string(text), words) {
			err = fmt.Errorf("%s does not log %q", name, words)
		}
		return err
	})
}
