package pods_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/topology"
)

// The paper's services in the scenarios: web has three load balancers, shop one in
// generic XDP mode.
const (
	web = iota
	shop
)

// pods is an environment with load balancers in pods, and its Services.
type pods struct {
	*fixture.World
	tunnel, direct, nat     fixture.Spec // of web
	shopTunnel, shopDirect  fixture.Spec
	shopNAT, shopRoundRobin fixture.Spec
	roundRobin              fixture.Spec
}

func newPods(t *testing.T) *pods {
	w := fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 2), Nodes: 4, IPv6: true}, 3)
	p := &pods{
		World:          w,
		tunnel:         fixture.Spec{Name: "tunnel", Of: web, Host: 1},
		direct:         fixture.Spec{Name: "direct", Of: web, Host: 2, Annotations: []string{"forwarding-mode: dsr-nat"}},
		nat:            fixture.Spec{Name: "nat", Of: web, Host: 3, Annotations: []string{"forwarding-mode: fullnat"}},
		roundRobin:     fixture.Spec{Name: "turns", Of: web, Host: 4, Annotations: []string{"scheduler: rr"}},
		shopTunnel:     fixture.Spec{Name: "shop-tunnel", Of: shop, Host: 1},
		shopDirect:     fixture.Spec{Name: "shop-direct", Of: shop, Host: 2, Annotations: []string{"forwarding-mode: dsr-nat", "scheduler: rr"}},
		shopNAT:        fixture.Spec{Name: "shop-nat", Of: shop, Host: 3, Annotations: []string{"forwarding-mode: fullnat"}},
		shopRoundRobin: fixture.Spec{Name: "shop-turns", Of: shop, Host: 4, Annotations: []string{"scheduler: rr", "forwarding-mode: fullnat"}},
	}
	w.HandIn(t, p.tunnel, p.direct, p.nat, p.roundRobin, p.shopTunnel, p.shopDirect, p.shopNAT, p.shopRoundRobin)
	for range 3 {
		w.NewBalancer(t, web)
	}
	w.NewBalancer(t, shop, "--xdp-mode", "generic")
	return p
}

// TestPods runs the scenarios of load balancers in pods, one after the other in one
// network; each leaves it ready for the next.
func TestPods(t *testing.T) {
	p := newPods(t)
	t.Run("every method", p.everyMethod)
	t.Run("generic mode", p.genericMode)
	t.Run("every role reports its state", p.everyRoleReports)
	t.Run("restart", p.restart)
	t.Run("restart alone", p.restartAlone)
	t.Run("come and go", p.comeAndGo)
	t.Run("past the balancers", p.pastTheBalancers)
	t.Run("refused input", p.refusedInput)
	t.Run("refused frontends", p.refusedFrontends)
	t.Run("what is programmed stays", p.programmedStays)
	t.Run("folder and files", p.folderAndFiles)
	t.Run("refused peers", p.refusedPeers)
	t.Run("second agents", p.secondAgents)
	t.Run("panic", p.panicMode)
	t.Run("no panic", p.noPanic)
}

// everyMethod reaches every Service over TCP and UDP, IPv4 and IPv6, on ports that differ
// from the backends'.
func (p *pods) everyMethod(t *testing.T) {
	for _, s := range []fixture.Spec{p.tunnel, p.direct, p.nat, p.roundRobin} {
		t.Run(s.Name, func(t *testing.T) { p.Reach(t, s, true) })
	}
}

// genericMode does the same with a program in generic mode.
func (p *pods) genericMode(t *testing.T) {
	p.Eventually(t, "shop-lb1", func(s status.Status) error {
		if s.DataPlane == nil || len(s.DataPlane.Attached) != 1 || !strings.Contains(s.DataPlane.Attached[0], "generic") {
			return fmt.Errorf("data plane %+v", s.DataPlane)
		}
		return nil
	})
	for _, s := range []fixture.Spec{p.shopTunnel, p.shopDirect, p.shopNAT, p.shopRoundRobin} {
		t.Run(s.Name, func(t *testing.T) { p.Reach(t, s, true) })
	}
}

// again restarts a load balancer's agent after a signal ended it.
func (p *pods) again(t *testing.T, pod topology.Pod, sig syscall.Signal, args ...string) {
	t.Helper()
	old := p.Process(pod.Name)
	if err := old.Signal(sig); err != nil {
		t.Fatal(err)
	}
	<-old.Done()
	if err := old.Wait(); sig == syscall.SIGTERM && err != nil {
		t.Errorf("%s ends on SIGTERM with %v", pod.Name, err)
	}
	started := time.Now()
	if err := p.StartBalancer(pod, args...); err != nil {
		t.Fatal(err)
	}
	p.AwaitBack(t, pod, started)
}

// restart stops each load balancer, one at a time, gracefully and by SIGKILL, under load.
func (p *pods) restart(t *testing.T) {
	stateless := []fixture.Traffic{
		p.Load(t, "tunnel", p.tunnel.HTTP(), 20, 50),
		p.Load(t, "tunnel over IPv6", p.tunnel.HTTP6(), 10, 20),
		p.Load(t, "dsr-nat", p.direct.HTTP(), 20, 50),
		p.Load(t, "dsr-nat over IPv6", p.direct.HTTP6(), 10, 20),
	}
	// A connection with fullnat lives in one load balancer, and breaks if the router
	// sends it to another in the meantime.
	nat := p.Load(t, "fullnat", p.nat.HTTP(), 20, 20)
	mark := nat.Mark()
	for _, pod := range p.Balancers(web) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			fixture.During(t, stateless, fmt.Sprintf("%v to %s and a new start", sig, pod.Name), func() { p.again(t, pod, sig) })
		}
	}
	c := nat.LostSince(t, mark)
	t.Logf("fullnat: six restarts of one of three balancers cost %d of %d requests and broke %d connections: %v",
		c.Failed, c.Requests, c.BrokenConnections, c.Reasons)
	for why, n := range c.Reasons {
		if !strings.HasSuffix(why, "reset") {
			t.Errorf("fullnat: %d connections ended with %s: clients must be notified immediately when the load balancer changes", n, why)
		}
	}
	fixture.During(t, []fixture.Traffic{nat}, "nothing, after the restarts", func() { nat.AwaitSettled(t) })
}

// restartAlone restarts a service's only load balancer: its tracked flows are still
// there, and connections continue.
func (p *pods) restartAlone(t *testing.T) {
	all := []fixture.Traffic{
		p.Load(t, "fullnat alone", p.shopNAT.HTTP(), 20, 0),
		p.Load(t, "rr alone", p.shopDirect.HTTP(), 20, 0),
	}
	pod := p.Balancers(shop)[0]
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		fixture.During(t, all, fmt.Sprintf("%v to %s and a new start", sig, pod.Name), func() { p.again(t, pod, sig, "--xdp-mode", "generic") })
	}
}
