package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/status"
)

// The paper's services that the stories use: web has three balancers, shop one
// in generic XDP mode.
const (
	web = iota
	shop
)

// pods is a world whose balancers live in pods, and its Services.
type pods struct {
	*world
	tunnel, direct, nat     spec // of web
	shopTunnel, shopDirect  spec
	shopNAT, shopRoundRobin spec
	roundRobin              spec
}

func newPods(t *testing.T) *pods {
	w := newWorld(t, paper.Options{Services: make([]paper.ServiceOptions, 2), Nodes: 4, IPv6: true}, 3)
	p := &pods{
		world:          w,
		tunnel:         spec{name: "tunnel", of: web, host: 1},
		direct:         spec{name: "direct", of: web, host: 2, annotations: []string{"method: direct-nat"}},
		nat:            spec{name: "nat", of: web, host: 3, annotations: []string{"method: fullnat"}},
		roundRobin:     spec{name: "turns", of: web, host: 4, annotations: []string{"scheduler: rr"}},
		shopTunnel:     spec{name: "shop-tunnel", of: shop, host: 1},
		shopDirect:     spec{name: "shop-direct", of: shop, host: 2, annotations: []string{"method: direct-nat", "scheduler: rr"}},
		shopNAT:        spec{name: "shop-nat", of: shop, host: 3, annotations: []string{"method: fullnat"}},
		shopRoundRobin: spec{name: "shop-turns", of: shop, host: 4, annotations: []string{"scheduler: rr", "method: fullnat"}},
	}
	w.write(t, p.tunnel, p.direct, p.nat, p.roundRobin, p.shopTunnel, p.shopDirect, p.shopNAT, p.shopRoundRobin)
	for range 3 {
		w.balancer(t, web)
	}
	w.balancer(t, shop, "--xdp-mode", "generic")
	return p
}

// TestPods tells the stories of balancers in pods, one after the other in one
// network; each leaves it as it should be for the next.
func TestPods(t *testing.T) {
	p := newPods(t)
	t.Run("every method", p.everyMethod)
	t.Run("generic mode", p.genericMode)
	t.Run("every role tells", p.everyRoleTells)
	t.Run("restart", p.restart)
	t.Run("restart alone", p.restartAlone)
	t.Run("come and go", p.comeAndGo)
	t.Run("refused input", p.refusedInput)
	t.Run("refused frontends", p.refusedFrontends)
	t.Run("folder and files", p.folderAndFiles)
	t.Run("refused peers", p.refusedPeers)
	t.Run("second agents", p.secondAgents)
	t.Run("panic", p.panicMode)
	t.Run("no panic", p.noPanic)
}

// everyMethod asks every Service by TCP and UDP, over IPv4 and IPv6, on ports
// that differ from the servers'.
func (p *pods) everyMethod(t *testing.T) {
	for _, s := range []spec{p.tunnel, p.direct, p.nat, p.roundRobin} {
		t.Run(s.name, func(t *testing.T) { p.reach(t, s, true) })
	}
}

// genericMode does the same through a program that runs in generic mode.
func (p *pods) genericMode(t *testing.T) {
	p.eventually(t, "shop-lb1", func(s status.Status) error {
		if s.DataPlane == nil || len(s.DataPlane.Attached) != 1 || !strings.Contains(s.DataPlane.Attached[0], "generic") {
			return fmt.Errorf("data plane %+v", s.DataPlane)
		}
		return nil
	})
	for _, s := range []spec{p.shopTunnel, p.shopDirect, p.shopNAT, p.shopRoundRobin} {
		t.Run(s.name, func(t *testing.T) { p.reach(t, s, true) })
	}
}

// reach asks a Service in every way, and expects every server to answer some.
func (w *world) reach(t *testing.T, s spec, six bool) {
	t.Helper()
	for _, six := range []bool{false, six} {
		vip, echo, locals := s.vip(six, httpPort), s.vip(six, echoPort), w.ClientAddrs
		if six {
			locals = w.ClientAddrs6
		}
		w.answers(t, vip)
		answered := w.requests(t, 60, vip)
		for i := range 30 {
			server, err := w.ask(t, locals[i%len(locals)], echo)
			if err != nil {
				t.Errorf("UDP %s: %v", echo, err)
				break
			}
			answered["UDP "+server]++
		}
		for _, pod := range s.servers(w) {
			if answered[pod.Name] == 0 || answered["UDP "+pod.Name] == 0 {
				t.Errorf("%s: server %s did not get its share of TCP and UDP: %v", vip, pod.Name, answered)
			}
		}
	}
}

// again starts a balancer's agent anew after a signal ended it.
func (p *pods) again(t *testing.T, pod paper.Pod, sig syscall.Signal, args ...string) {
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
	p.back(t, pod, started)
}

// restart ends each balancer in turn, gently and by force, under load.
func (p *pods) restart(t *testing.T) {
	stateless := []traffic{
		p.load(t, "tunnel", p.tunnel.http(), 20, 50),
		p.load(t, "tunnel over IPv6", p.tunnel.http6(), 10, 20),
		p.load(t, "direct-nat", p.direct.http(), 20, 50),
		p.load(t, "direct-nat over IPv6", p.direct.http6(), 10, 20),
	}
	// A connection of fullnat lives in one balancer, and breaks where the
	// router sends it to another meanwhile.
	nat := p.load(t, "fullnat", p.nat.http(), 20, 20)
	mark := nat.Mark()
	for _, pod := range p.Balancers(web) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			during(t, stateless, fmt.Sprintf("%v to %s and a new start", sig, pod.Name), func() { p.again(t, pod, sig) })
		}
	}
	c := nat.lost(t, mark)
	t.Logf("fullnat: six restarts of one of three balancers cost %d of %d requests and broke %d connections: %v",
		c.Failed, c.Requests, c.BrokenConnections, c.Reasons)
	for why, n := range c.Reasons {
		if !strings.HasSuffix(why, "reset") {
			t.Errorf("fullnat: %d connections ended by %s: whose balancer changes is to be told at once", n, why)
		}
	}
	during(t, []traffic{nat}, "nothing, after the restarts", func() { nat.settle(t) })
}

// restartAlone restarts a service's only balancer: what it remembers of
// connections is still there, and they go on.
func (p *pods) restartAlone(t *testing.T) {
	all := []traffic{
		p.load(t, "fullnat alone", p.shopNAT.http(), 20, 0),
		p.load(t, "rr alone", p.shopDirect.http(), 20, 0),
	}
	pod := p.Balancers(shop)[0]
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		during(t, all, fmt.Sprintf("%v to %s and a new start", sig, pod.Name), func() { p.again(t, pod, sig, "--xdp-mode", "generic") })
	}
}
