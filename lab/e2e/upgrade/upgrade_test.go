package upgrade_test

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// The paper's services: web has three stateless load balancers, shop has one that tracks
// flows.
const (
	web = iota
	shop
)

// deployment is everything that is upgraded, and the traffic through it.
type deployment struct {
	*fixture.World
	traffic   []fixture.Traffic
	datagrams []*datagrams
}

func newDeployment(t *testing.T) *deployment {
	o := topology.Options{Services: make([]topology.ServiceOptions, 2), Nodes: 4, IPv6: true, TwoReflectors: true}
	d := &deployment{World: fixture.NewOf(t, previous(), cluster.RouterFairlead, o, 3)}
	d.Since, d.Drained = map[string]time.Time{}, map[string]time.Time{}
	for _, service := range []int{web, shop} {
		for _, pod := range d.Servers(service) {
			d.Since[pod.Name] = time.Now()
		}
	}
	d.HandIn(t, services()...)
	for range 3 {
		d.NewBalancer(t, web)
	}
	d.NewBalancer(t, shop)
	return d
}

// services are the frontends, one for each feature that an upgrade could break.
func services() []fixture.Spec {
	return []fixture.Spec{
		{Name: "tunnel", Of: web, Host: 1},
		{Name: "gue", Of: web, Host: 2, Annotations: []string{"encapsulation: gue"}},
		{Name: "direct", Of: web, Host: 3, Annotations: []string{"forwarding-mode: dsr-nat"}},
		{Name: "fullnat", Of: shop, Host: 1, Annotations: []string{"forwarding-mode: fullnat"}},
		{Name: "turns", Of: shop, Host: 2, Annotations: []string{"forwarding-mode: dsr-nat", "scheduler: rr"}},
		{Name: "remembered", Of: shop, Host: 3, Annotations: []string{"connection-consistency: flow-table"}},
	}
}

// startTraffic starts all traffic, and makes older flows depend on the second chance: a
// backend is added, another drains.
func (d *deployment) startTraffic(t *testing.T) {
	all := services()
	for _, s := range all {
		oneShots := 30.0
		if s.Of == shop {
			oneShots = 0 // there is no route while its only load balancer restarts
		}
		d.traffic = append(d.traffic, d.Load(t, s.Name, s.HTTP(), 20, oneShots), d.Load(t, s.Name+" over IPv6", s.HTTP6(), 10, oneShots/2))
		d.datagrams = append(d.datagrams, d.startDatagrams(t, s.Name+" UDP", s, 20))
	}
	d.unharmed(t, "a server comes and one drains", func() {
		added := d.NewServer(t, web)
		leaving := d.Servers(web)[0]
		d.Since[added.Name], d.Draining[leaving.Name], d.Drained[leaving.Name] = time.Now(), true, time.Now()
		d.HandIn(t, all...)
		for _, s := range all[:3] {
			d.InService(t, added, s, func(b *status.Backend) bool { return b != nil && b.InService })
			d.InService(t, leaving, s, func(b *status.Backend) bool { return b != nil && b.Draining })
		}
	})
}

// unharmed calls do while all traffic flows, and fails the test if that breaks a
// connection or a flow.
func (d *deployment) unharmed(t *testing.T, what string, do func()) {
	t.Helper()
	before := make([]int, len(d.datagrams))
	for i, g := range d.datagrams {
		_, broken := g.counts()
		before[i] = len(broken)
	}
	marks := make([]load.Mark, len(d.traffic))
	for i, tr := range d.traffic {
		marks[i] = tr.Mark()
	}
	began := time.Now()
	do()
	t.Logf("%s: took %.1f s", what, time.Since(began).Seconds())
	d.broken(t, what, marks, before)
}

// broken fails the test for every traffic that has lost something since.
func (d *deployment) broken(t *testing.T, what string, marks []load.Mark, before []int) {
	t.Helper()
	for i, tr := range d.traffic {
		c := tr.LostSince(t, marks[i])
		if c.Failed+c.BrokenConnections > 0 || c.Requests == 0 {
			t.Errorf("%s: %s: %d requests, %d failed, %d connections broke: %v", what, tr.Name(), c.Requests, c.Failed, c.BrokenConnections, c.Reasons)
		}
	}
	for i, g := range d.datagrams {
		if exchanges, broken := g.counts(); len(broken) > before[i] || exchanges == 0 {
			t.Errorf("%s: %s: %d flows broke: %v", what, g.name, len(broken)-before[i], broken[before[i]:])
			if len(broken) > 0 {
				d.explain(t, g.lastBroken(), g.to)
			}
		}
	}
}

// explain shows what load balancers do with a flow's datagrams, and which nodes know the
// flow.
func (d *deployment) explain(t *testing.T, client, vip netip.AddrPort) {
	t.Helper()
	for _, service := range []int{web, shop} {
		for _, pod := range d.Balancers(service) {
			out, errs, _ := d.Fairlead(t, "", "trace", "--socket", cluster.Socket(pod.Name), "--from", client.String(), "--to", vip.String(), "--protocol", "udp")
			t.Logf("%s: %s%s", pod.Name, out, errs)
		}
	}
	for _, node := range d.Nodes {
		out, errs, _ := d.Fairlead(t, "", "flows", "--socket", cluster.Socket(node.Name), "--client", client.Addr().String(), "--vip", vip.String())
		t.Logf("%s: %s%s", node.Name, out, errs)
	}
}

// component is one unit of an upgrade.
type component struct {
	name string
	to   func(t *testing.T, how syscall.Signal)
}

// balancers, nodes and routing return the components of each kind.
func (d *deployment) balancers() (all []component) {
	for _, service := range []int{web, shop} {
		for _, pod := range d.Balancers(service) {
			all = append(all, component{pod.Name, func(t *testing.T, how syscall.Signal) { d.againBalancer(t, pod, how) }})
		}
	}
	return all
}

func (d *deployment) nodes() (all []component) {
	for _, node := range d.Nodes {
		all = append(all, component{node.Name, func(t *testing.T, how syscall.Signal) { d.againNode(t, node, how) }})
	}
	return all
}

func (d *deployment) routing() []component {
	all := []component{{topology.Router, d.againRouter}}
	for _, name := range d.Reflectors() {
		all = append(all, component{name, func(t *testing.T, how syscall.Signal) { d.againReflector(t, name, how) }})
	}
	return all
}

// end ends a process.
func (d *deployment) end(t *testing.T, name string, how syscall.Signal) {
	t.Helper()
	p := d.Process(name)
	if err := p.Signal(how); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Wait(); how == syscall.SIGTERM && err != nil {
		t.Errorf("%s ends on SIGTERM with %v", name, err)
	}
}

func (d *deployment) againBalancer(t *testing.T, pod topology.Pod, how syscall.Signal) {
	d.end(t, pod.Name, how)
	d.startBalancer(t, pod)
}

func (d *deployment) startBalancer(t *testing.T, pod topology.Pod) {
	started := time.Now()
	if err := d.StartBalancer(pod, "--drain-timeout", "1s"); err != nil {
		t.Fatal(err)
	}
	d.AwaitBack(t, pod, started)
}

func (d *deployment) againNode(t *testing.T, node *topology.Node, how syscall.Signal) {
	d.end(t, node.Name, how)
	d.startNode(t, node)
}

func (d *deployment) startNode(t *testing.T, node *topology.Node) {
	started := time.Now()
	if err := d.StartNode(node); err != nil {
		t.Fatal(err)
	}
	d.Eventually(t, node.Name, func(s status.Status) error {
		if s.Started.Before(started) || s.DSRAgent == nil || len(s.DSRAgent.Entries) == 0 || len(s.Services) == 0 {
			return fmt.Errorf("%s serves nothing yet", node.Name)
		}
		return nil
	})
}

func (d *deployment) againRouter(t *testing.T, how syscall.Signal) {
	d.end(t, topology.Router, how)
	if err := d.StartRouter(); err != nil {
		t.Fatal(err)
	}
	d.peersUp(t, socket.Default("router"), 2)
	d.routesStand(t)
}

func (d *deployment) againReflector(t *testing.T, name string, how syscall.Signal) {
	d.end(t, name, how)
	if err := d.StartReflector(name); err != nil {
		t.Fatal(err)
	}
	d.peersUp(t, socket.Default(name), 5)
	d.peersUp(t, socket.Default("router"), 2)
	d.routesStand(t)
}

// peersUp waits until a process has this number of sessions.
func (d *deployment) peersUp(t *testing.T, socket string, want int) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		s, err := status.Fetch(t.Context(), socket)
		if err != nil {
			return err
		}
		up := 0
		for _, p := range s.Peers {
			if p.State == "established" {
				up++
			}
		}
		if up != want {
			return fmt.Errorf("%s: %d sessions are up, want %d", socket, up, want)
		}
		return nil
	})
}

func (d *deployment) routesStand(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		for _, service := range []int{web, shop} {
			if want := d.NextHops(service); !d.RouterHas(service, want) {
				return fmt.Errorf("the router has not the next hops %v", want)
			}
		}
		return nil
	})
}

// roll makes components run a version, one at a time.
func (d *deployment) roll(t *testing.T, to, binary string, how syscall.Signal, groups ...[]component) {
	t.Helper()
	d.Use(binary)
	for _, group := range groups {
		for _, c := range group {
			d.unharmed(t, fmt.Sprintf("%s to %s", c.name, to), func() { c.to(t, how) })
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// orders are the orders in which components are upgraded.
var orders = map[string]func(d *deployment) [][]component{
	"nodes alone":     func(d *deployment) [][]component { return [][]component{d.nodes()} },
	"balancers alone": func(d *deployment) [][]component { return [][]component{d.balancers()} },
	"routing alone":   func(d *deployment) [][]component { return [][]component{d.routing()} },
	"balancers first": func(d *deployment) [][]component { return [][]component{d.balancers(), d.nodes(), d.routing()} },
	"nodes first":     func(d *deployment) [][]component { return [][]component{d.nodes(), d.balancers(), d.routing()} },
}

// TestRolling upgrades and downgrades everything, in several orders.
func TestRolling(t *testing.T) {
	needsVersions(t)
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			d := newDeployment(t)
			d.startTraffic(t)
			d.roll(t, "N+1", next(), syscall.SIGTERM, order(d)...)
			d.roll(t, "N", previous(), syscall.SIGTERM, order(d)...)
		})
	}
}

// crashes is how often a version is killed while it starts, each time later.
const crashes = 12

// crash starts a process repeatedly, and kills it a little later each time.
func (d *deployment) crash(t *testing.T, name string, start func() error) {
	t.Helper()
	for i := range crashes {
		if err := start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 40 * time.Millisecond) // a start takes some 0.3 s
		if err := d.Process(name).Kill(); err != nil {
			t.Fatal(err)
		}
		<-d.Process(name).Done()
	}
}

// TestCrashLoop upgrades a load balancer and a node to a version that dies at different
// points of its start, downgrades them, and then upgrades them.
func TestCrashLoop(t *testing.T) {
	needsVersions(t)
	d := newDeployment(t)
	d.startTraffic(t)
	pod, node := d.Balancers(web)[0], d.Nodes[0]
	balancer := func() error { return d.StartBalancer(pod, "--drain-timeout", "1s") }
	backend := func() error { return d.StartNode(node) }
	for _, back := range []bool{true, false} {
		d.unharmed(t, pod.Name+" in a crash loop", func() {
			d.end(t, pod.Name, syscall.SIGTERM)
			d.Use(next())
			d.crash(t, pod.Name, balancer)
			if back {
				d.Use(previous())
			}
			d.startBalancer(t, pod)
		})
		d.unharmed(t, node.Name+" in a crash loop", func() {
			d.end(t, node.Name, syscall.SIGTERM)
			d.Use(next())
			d.crash(t, node.Name, backend)
			if back {
				d.Use(previous())
			}
			d.startNode(t, node)
		})
	}
}

// TestKilled is TestRolling with versions that are killed.
func TestKilled(t *testing.T) {
	needsVersions(t)
	d := newDeployment(t)
	d.startTraffic(t)
	d.roll(t, "N+1", next(), syscall.SIGKILL, d.balancers(), d.nodes(), d.routing())
	d.roll(t, "N", previous(), syscall.SIGKILL, d.balancers(), d.nodes(), d.routing())
}

// TestOneOfEach runs all of this with the current version, so that the tests above keep
// working between releases.
func TestOneOfEach(t *testing.T) {
	d := newDeployment(t)
	d.startTraffic(t)
	d.roll(t, "the same version", next(), syscall.SIGKILL, d.balancers()[:1], d.nodes()[:1], d.routing()[1:2])
}
