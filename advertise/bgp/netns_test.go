package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/router"
)

// paper builds the network of the paper's Fig. 5: load balancers in pods of the overlay
// network, which the reflectors know and the router does not.
//
//	pod-105 172.16.5.2 ── node-105 10.0.0.105 ──┐
//	pod-106 172.16.6.2 ── node-106 10.0.0.106 ──┤ switch ── reflector 10.0.0.109
//	pod-107 172.16.7.2 ── node-107 10.0.0.107 ──┘        ── second    10.0.0.108
//	── router    10.0.0.110
func paper(t *testing.T) *lab.Lab {
	t.Helper()
	top := lab.Topology{Switches: []lab.SwitchSpec{{Name: "nodenet"}}}
	overlay := func(e lab.End) lab.End {
		for n := 5; n <= 7; n++ {
			e = e.Via(fmt.Sprintf("10.0.0.10%d", n), fmt.Sprintf("172.16.%d.0/24", n))
			e = e.Via(fmt.Sprintf("fd00::10%d", n), fmt.Sprintf("fd16:%d::/64", n))
		}
		return e
	}
	for name, n := range map[string]int{"reflector": 109, "second": 108, "router": 110} {
		e := lab.At(name, "eth0", fmt.Sprintf("10.0.0.%d/16", n), fmt.Sprintf("fd00::%d/64", n))
		if name != "router" {
			e = overlay(e)
		}
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: name})
		top.Links = append(top.Links, lab.Link{A: e, B: lab.Port("nodenet")})
	}
	for n := 5; n <= 7; n++ {
		node, pod := fmt.Sprintf("node-10%d", n), fmt.Sprintf("pod-10%d", n)
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: node, Forward: true}, lab.HostSpec{Name: pod})
		top.Links = append(top.Links,
			lab.Link{A: lab.At(node, "eth0", fmt.Sprintf("10.0.0.10%d/16", n), fmt.Sprintf("fd00::10%d/64", n)), B: lab.Port("nodenet")},
			lab.Link{
				A: lab.At(pod, "eth0", fmt.Sprintf("172.16.%d.2/24", n), fmt.Sprintf("fd16:%d::2/64", n)).
					Via(fmt.Sprintf("172.16.%d.1", n), "default").Via(fmt.Sprintf("fd16:%d::1", n), "default"),
				B: lab.At(node, "pod0", fmt.Sprintf("172.16.%d.1/24", n), fmt.Sprintf("fd16:%d::1/64", n))})
	}
	return labtest.Build(t, top)
}

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func reflectorPart(addr string) part {
	return part{Reflector: &ReflectorConfig{AS: testAS, RouterID: netip.MustParseAddr(addr), ClusterID: netip.MustParseAddr("10.0.0.109"),
		Groups: []NeighborGroup{
			{Name: "balancers", Prefixes: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/16"), netip.MustParsePrefix("fd16::/16")}, BFD: true, Password: "overlay"},
			{Name: "router", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.110/32")}, SendMax: DefaultSendMax, BFD: true},
		}}}
}

func peers(password string, reflectors ...string) (out []PeerConfig) {
	for _, a := range addrs(reflectors...) {
		out = append(out, PeerConfig{Address: a, BFD: true, Password: password})
	}
	return out
}

func routerPart(reflectors ...string) part {
	return part{Router: &RouterConfig{AS: testAS, LocalAddress: netip.MustParseAddr("10.0.0.110"), Peers: peers("", reflectors...)}}
}

func speakerPart(n int, reflectors ...string) part {
	return part{
		Speaker: &SpeakerConfig{AS: testAS, LocalAddress: netip.MustParseAddr(fmt.Sprintf("172.16.%d.2", n)), Peers: peers("overlay", reflectors...)},
		Routes:  serviceVia(n),
	}
}

func serviceVia(n int) []route.Route {
	return []route.Route{routeVia(service, fmt.Sprintf("10.0.0.10%d", n))}
}

// watcher reads the router's kernel table from outside.
type watcher struct {
	t     *testing.T
	table *router.Table
}

func watch(t *testing.T, l *lab.Lab) watcher {
	t.Helper()
	table, err := router.New(router.Config{NetNS: l.Host("router").Namespace().FD()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close(false) })
	return watcher{t, table}
}

// now returns the table as "10.1.1.0/24 10.0.0.105 10.0.0.106; ...".
func (w watcher) now() string {
	rs, err := w.table.List()
	if err != nil {
		w.t.Fatal(err)
	}
	var sets []advertise.RouteSet
	for _, r := range rs {
		s := advertise.RouteSet{Prefix: r.Prefix}
		for _, h := range r.Hops {
			s.NextHops = append(s.NextHops, h.Gateway)
		}
		sets = append(sets, s)
	}
	return show(sets)
}

// until waits for the table to have these contents, and returns how long that took.
func (w watcher) until(want string, since time.Time) time.Duration {
	w.t.Helper()
	for last := ""; ; time.Sleep(time.Millisecond / 2) {
		if last = w.now(); last == want {
			return time.Since(since)
		}
		if time.Since(since) > 30*time.Second {
			w.t.Fatalf("kernel table is %q after 30 s, want %q", last, want)
		}
	}
}

func (a *player) untilUp() {
	a.t.Helper()
	eventually(a.t, "sessions and BFD up", func() bool {
		ps := a.Query().Peers
		return len(ps) > 0 && !slices.ContainsFunc(ps, func(p advertise.Peer) bool { return p.State != session.Established || p.BFD != "up" })
	})
}

const (
	one   = "10.1.1.0/24 10.0.0.105"
	two   = "10.1.1.0/24 10.0.0.105 10.0.0.106"
	three = "10.1.1.0/24 10.0.0.105 10.0.0.106 10.0.0.107"
)

// TestConvergence measures convergence times. The limits are far above what was measured
// on an idle machine, which is logged, and below what usual timers would take:
// many speakers pause for 30 s after a reset.
func TestConvergence(t *testing.T) {
	l := paper(t)
	enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
	enact(t, l.Host("router"), routerPart("10.0.0.109")).untilUp()
	kernel := watch(t, l)
	check := func(what string, took, limit time.Duration) {
		t.Helper()
		t.Logf("%-40s %7.1f ms", what, float64(took.Microseconds())/1000)
		if took > limit {
			t.Errorf("%s took %s, want less than %s", what, took, limit)
		}
	}
	start := time.Now()
	first := enact(t, l.Host("pod-105"), speakerPart(5, "10.0.0.109"))
	check("process start to kernel route", kernel.until(one, start), 20*time.Second)
	start = time.Now()
	second := enact(t, l.Host("pod-106"), speakerPart(6, "10.0.0.109"))
	check("second process start to kernel route", kernel.until(two, start), 20*time.Second)
	third := enact(t, l.Host("pod-107"), part{Speaker: speakerPart(7, "10.0.0.109").Speaker})
	third.untilUp()

	for range 3 {
		start = time.Now()
		third.Send(order{Set: serviceVia(7)})
		check("announce to kernel route", kernel.until(three, start), 5*time.Second)
		start = time.Now()
		third.Send(order{Set: []route.Route{}})
		check("withdraw to kernel route", kernel.until(two, start), 5*time.Second)
	}
	third.Send(order{Set: serviceVia(7)})
	kernel.until(three, time.Now())
	start = time.Now()
	third.End()
	check("graceful end to kernel route", kernel.until(two, start), 5*time.Second)
	start = time.Now()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	check("SIGKILL to kernel route", kernel.until("10.1.1.0/24 10.0.0.106", start), 5*time.Second)

	second.untilUp()
	start = time.Now()
	if err := l.Cut("node-106", "eth0"); err != nil {
		t.Fatal(err)
	}
	// The hold time would need 9 s.
	check("silent cut to kernel route", kernel.until("", start), 5*time.Second)
	eventually(t, "BFD named as the reason", func() bool {
		ps := second.Query().Peers
		return strings.Contains(ps[0].LastError, "BFD is down: nothing received from 10.0.0.109") || strings.Contains(ps[0].LastError, "no answer from 10.0.0.109:179")
	})
	if err := l.Restore("node-106", "eth0"); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	check("restored link to kernel route", kernel.until("10.1.1.0/24 10.0.0.106", start), 10*time.Second)
}

func TestReflectorProcessRestart(t *testing.T) {
	l := paper(t)
	reflector := enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
	enact(t, l.Host("router"), routerPart("10.0.0.109"))
	enact(t, l.Host("pod-105"), speakerPart(5, "10.0.0.109"))
	enact(t, l.Host("pod-106"), speakerPart(6, "10.0.0.109"))
	kernel := watch(t, l)
	kernel.until(two, time.Now())
	reflector.Kill()
	kernel.until("", time.Now())
	start := time.Now()
	enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
	t.Logf("reflector started again to kernel route: %s", kernel.until(two, start))
}

// TestRouterRestart kills the router: the kernel table survives, and the next router
// takes it over without removing anything in between. A load balancer that left meanwhile
// is removed then.
func TestRouterRestart(t *testing.T) {
	l := paper(t)
	enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
	first := enact(t, l.Host("router"), routerPart("10.0.0.109"))
	a := enact(t, l.Host("pod-105"), speakerPart(5, "10.0.0.109"))
	b := enact(t, l.Host("pod-106"), speakerPart(6, "10.0.0.109"))
	kernel := watch(t, l)
	kernel.until(two, time.Now())
	first.Kill()
	<-first.Done()
	second := enact(t, l.Host("router"), routerPart("10.0.0.109"))
	for second.Query().Calls == 0 {
		if got := kernel.now(); got != two {
			t.Fatalf("during the restart the kernel has %q, want %q", got, two)
		}
	}
	if got := kernel.now(); got != two {
		t.Errorf("after the restart the kernel has %q, want %q", got, two)
	}
	second.Kill()
	<-second.Done()
	b.End()
	if got := kernel.now(); got != two {
		t.Errorf("without a router the kernel has %q, want %q", got, two)
	}
	third := enact(t, l.Host("router"), routerPart("10.0.0.109"))
	kernel.until(one, time.Now())
	third.Kill()
	<-third.Done()
	a.End()
	enact(t, l.Host("router"), routerPart("10.0.0.109"))
	kernel.until("", time.Now()) // although there was nothing to receive
}

// TestReflectorOnThisMachine runs an agent on a reflector's node, which connects to it
// from the reflector's own address: neither takes the BFD ports from the other, which
// needs them for others.
func TestReflectorOnThisMachine(t *testing.T) {
	l := paper(t)
	nodes := NeighborGroup{Name: "nodes", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, BFD: true}
	reflector := enact(t, l.Host("node-105"), part{Reflector: &ReflectorConfig{
		AS: testAS, RouterID: netip.MustParseAddr("10.0.0.109"), Groups: []NeighborGroup{nodes}}})
	speaker := func(id string) part {
		return part{Speaker: &SpeakerConfig{AS: testAS, RouterID: netip.MustParseAddr(id), Peers: peers("", "10.0.0.105")}}
	}
	bfd := func(a *player) map[string]string {
		words := map[string]string{}
		for _, p := range a.Query().Peers {
			words[p.Address] = p.BFD
		}
		return words
	}
	local := enact(t, l.Host("node-105"), speaker("10.0.0.105"))
	eventually(t, "no BFD on one machine", func() bool { return bfd(local)["10.0.0.105"] == "not needed: on this machine" })
	enact(t, l.Host("node-106"), speaker("10.0.0.106")).untilUp()
	eventually(t, "the reflector says the same", func() bool {
		words := bfd(reflector)
		return words["10.0.0.105"] == "not needed: on this machine" && words["10.0.0.106"] == "up"
	})
}

func TestTwoReflectors(t *testing.T) {
	l := paper(t)
	both := []string{"10.0.0.108", "10.0.0.109"}
	calm := func(addr string) part { // silence of a busy machine would also change routes
		p := reflectorPart(addr)
		for i := range p.Reflector.Groups {
			p.Reflector.Groups[i].Timing = patient
		}
		return p
	}
	first := enact(t, l.Host("reflector"), calm("10.0.0.109"))
	enact(t, l.Host("second"), calm("10.0.0.108"))
	router := enact(t, l.Host("router"), routerPart(both...))
	a, b := enact(t, l.Host("pod-105"), speakerPart(5, both...)), enact(t, l.Host("pod-106"), speakerPart(6, both...))
	for _, x := range []*player{router, a, b} {
		x.untilUp()
	}
	kernel := watch(t, l)
	kernel.until(two, time.Now())
	var before, after report
	eventually(t, "router says that it holds both, by either reflector", func() bool {
		before = router.Query()
		return show(before.Routes) == two && before.Peers[0].Received == 2 && before.Peers[1].Received == 2
	})
	first.Kill()
	eventually(t, "router sees the reflector go", func() bool {
		return slices.ContainsFunc(router.Query().Peers, func(p advertise.Peer) bool { return p.Address == "10.0.0.109" && p.State != session.Established })
	})
	b.Send(order{Set: []route.Route{}})
	kernel.until(one, time.Now())
	eventually(t, "router says that it holds one", func() bool { after = router.Query(); return show(after.Routes) == one })
	if after.Calls != before.Calls+1 {
		t.Errorf("routes changed %d times, want once: by the withdrawal, not by the reflector's death", after.Calls-before.Calls)
	}
}

func TestOverIPv6(t *testing.T) {
	l := paper(t)
	enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
	enact(t, l.Host("router"), routerPart("10.0.0.109"))
	p := part{
		Speaker: &SpeakerConfig{AS: testAS, RouterID: netip.MustParseAddr("172.16.5.2"), LocalAddress: netip.MustParseAddr("fd16:5::2"), Peers: peers("overlay", "fd00::109")},
		Routes:  []route.Route{routeVia(service6, "fd00::105"), routeVia(service, "10.0.0.105")},
	}
	speaker := enact(t, l.Host("pod-105"), p)
	kernel := watch(t, l)
	kernel.until("10.1.1.0/24 10.0.0.105; fd00:1:1::/64 fd00::105", time.Now())
	speaker.untilUp()
	p.Speaker = &SpeakerConfig{AS: testAS, LocalAddress: netip.MustParseAddr("172.16.6.2"), Peers: peers("overlay", "10.0.0.109")}
	p.Routes = []route.Route{routeVia(service6, "fd00::106")}
	enact(t, l.Host("pod-106"), p)
	kernel.until("10.1.1.0/24 10.0.0.105; fd00:1:1::/64 fd00::105 fd00::106", time.Now())
	start := time.Now()
	if err := l.Cut("node-105", "eth0"); err != nil {
		t.Fatal(err)
	}
	t.Logf("silent cut of an IPv6 session: %s", kernel.until("fd00:1:1::/64 fd00::106", start))
}

// TestBusyMachine keeps sessions with BFD up while all CPUs are busy. It only runs if
// FAIRLEAD_BUSY specifies for how long ("30s").
func TestBusyMachine(t *testing.T) {
	how, err := time.ParseDuration(os.Getenv("FAIRLEAD_BUSY"))
	if err != nil {
		t.Skip("FAIRLEAD_BUSY is not set to a duration")
	}
	l := paper(t)
	reflector := enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
	router := enact(t, l.Host("router"), routerPart("10.0.0.109"))
	actors := []*player{router}
	for n := 5; n <= 7; n++ {
		actors = append(actors, enact(t, l.Host(fmt.Sprintf("pod-10%d", n)), speakerPart(n, "10.0.0.109")))
	}
	for _, a := range actors {
		a.untilUp()
	}
	for range 2 * runtime.NumCPU() {
		enact(t, l.Host("node-105"), part{})
	}
	time.Sleep(how)
	for _, p := range reflector.Query().Peers {
		if p.BFD != "up" || p.State != session.Established || time.Since(p.Since) < how {
			t.Errorf("not held: %+v", p)
		}
	}
	if calls := router.Query().Calls; calls > 4 {
		t.Errorf("routes changed %d times", calls)
	}
}
