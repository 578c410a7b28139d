package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/flows"
	"github.com/fairlead/fairlead/lab/flows/flowstest"
	"github.com/fairlead/fairlead/lab/interop"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/router"
)

// upstream is only the router's side of a system, with real processes: four nodes that
// answer requests themselves, and whose load balancers only speak BGP.
//
//	client 192.168.0.2 ── router .1 / 10.0.0.110 ── switch ─┬─ node-1 … node-4, 10.0.1.1 … .4
//	                                                        ├─ reflector 10.0.0.109
//	                                                        └─ second    10.0.0.108
type upstream struct {
	t     *testing.T
	l     *lab.Lab
	dir   string
	flows *flows.Flows
	// before is the node that first answered each flow.
	before []string
	orders []*json.Encoder
}

const balancedFlows = 100

// noBFD is set because peers would consider a process dead that gets no CPU for a second
// on a busy machine.
const noBFD = "--bfd=false"

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	top := lab.Topology{
		Hosts:    []lab.HostSpec{{Name: "client"}, {Name: "router", Forward: true}, {Name: "reflector"}, {Name: "second"}},
		Switches: []lab.SwitchSpec{{Name: "nodenet"}},
		Links: []lab.Link{
			{A: lab.At("client", "eth0", "192.168.0.2/24").Via("192.168.0.1", "default"), B: lab.At("router", "eth1", "192.168.0.1/24")},
			{A: lab.At("router", "eth0", "10.0.0.110/16"), B: lab.Port("nodenet")},
			{A: lab.At("reflector", "eth0", "10.0.0.109/16"), B: lab.Port("nodenet")},
			{A: lab.At("second", "eth0", "10.0.0.108/16"), B: lab.Port("nodenet")},
		},
	}
	for i := 1; i <= 4; i++ {
		name := fmt.Sprintf("node-%d", i)
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: name, Loopback: []string{"10.128.0.1/32"}})
		top.Links = append(top.Links, lab.Link{A: lab.At(name, "eth0", fmt.Sprintf("10.0.1.%d/16", i)).Via("10.0.0.110", "192.168.0.0/24"), B: lab.Port("nodenet")})
	}
	l, err := lab.Build(t.Context(), top)
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{t: t, l: l, dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			(&fixture.World{}).ShowLogs(t, u.dir)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	testkit.Do(t, l.Host("router").Namespace(), func() error {
		s, err := router.RouterSysctls(0)
		if err != nil {
			return err
		}
		return sysctl.SetAll(s)
	})
	return u
}

// start runs fairlead in a host until it accepts commands.
func (u *upstream) start(host string, args ...string) *lab.Process {
	u.t.Helper()
	socket := filepath.Join(u.dir, host+".sock")
	p := u.run(host, exec.Command(fixture.Binary, append(args, "--socket", socket)...))
	testkit.Eventually(u.t, fixture.Within, func() error {
		return exec.Command(fixture.Binary, "status", "--socket", socket).Run()
	})
	return p
}

// run runs a program in a host, with its output in the host's log.
func (u *upstream) run(host string, cmd *exec.Cmd) *lab.Process {
	u.t.Helper()
	log, err := os.OpenFile(filepath.Join(u.dir, host+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		u.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p, err := u.l.Host(host).Start(cmd)
	if err != nil {
		u.t.Fatal(err)
	}
	return p
}

func (u *upstream) reflector(host, address, cluster string) *lab.Process {
	u.t.Helper()
	return u.start(host, "reflector", noBFD, "--router-id", address, "--cluster-id", cluster, "--client-range", "10.0.1.0/24", "--router-range", "10.0.0.110")
}

func (u *upstream) router(args ...string) *lab.Process {
	u.t.Helper()
	return u.start("router", append([]string{"router", noBFD}, args...)...)
}

// speak has all nodes advertise the service, and answer there.
func (u *upstream) speak(prefix string) {
	u.t.Helper()
	for i := 1; i <= 4; i++ {
		host := fmt.Sprintf("node-%d", i)
		in, out, err := os.Pipe()
		if err != nil {
			u.t.Fatal(err)
		}
		u.t.Cleanup(func() { out.Close() })
		speaker := exec.Command(fixture.Lab(u.t), "bench", "speakers", "--reflector", "10.0.0.109,10.0.0.108", "--first", fmt.Sprint(i-1), "--balancers", "1")
		speaker.Stdin = in
		u.run(host, speaker)
		in.Close()
		u.orders = append(u.orders, json.NewEncoder(out))
		if err := u.orders[i-1].Encode(map[string]int{"All": 1}); err != nil {
			u.t.Fatal(err)
		}
		flowstest.Answer(u.t, u.l, netip.MustParseAddrPort("10.128.0.1:7"), host)
	}
}

// ask opens the flows once the routes are as wanted.
func (u *upstream) ask(want string) {
	u.t.Helper()
	u.until(want)
	u.flows = flowstest.Open(u.t, u.l, "client", netip.MustParseAddr("192.168.0.2"), netip.MustParseAddrPort("10.128.0.1:7"), balancedFlows)
	u.before = flowstest.Ask(u.t, u.flows)
	if shares := flows.Shares(u.before); len(shares) != 4 {
		u.t.Fatalf("flows go to %v", shares)
	}
}

// unharmed calls do while the flows are active. None may lose a datagram, nor move unless
// mayMove is set.
func (u *upstream) unharmed(what string, mayMove bool, do func()) {
	u.t.Helper()
	moved, err := u.flows.During(u.before, do)
	if err != nil {
		u.t.Fatal(err)
	}
	if u.flows.Lost > 0 || moved > 0 && !mayMove {
		u.t.Errorf("%s: %d datagrams, %d lost; flows changed their load balancer %d times", what, u.flows.Sent, u.flows.Lost, moved)
	}
	u.t.Logf("%s: %d datagrams, %d lost; flows moved %d times", what, u.flows.Sent, u.flows.Lost, moved)
	if u.before, err = u.flows.Ask(); err != nil {
		u.t.Fatal(err)
	}
	u.flows.Sent, u.flows.Lost = 0, 0
}

// table returns the routes to the service.
func (u *upstream) table() string {
	routes, err := u.l.Host("router").Routes(netip.MustParsePrefix("10.128.0.0/24"))
	if err != nil {
		return err.Error()
	}
	return strings.Join(routes, "; ")
}

func (u *upstream) until(want string) {
	u.t.Helper()
	testkit.Eventually(u.t, fixture.Within, func() error {
		if got := u.table(); got != want {
			return fmt.Errorf("the router's kernel has %q, want %q", got, want)
		}
		return nil
	})
}

// peersUp waits until this number of sessions of a host's process are up, and it has sent
// or received this number of routes.
func (u *upstream) peersUp(host string, want, routes int) {
	u.t.Helper()
	testkit.Eventually(u.t, fixture.Within, func() error {
		out, err := exec.Command(fixture.Binary, "status", "--socket", filepath.Join(u.dir, host+".sock"), "-o", "json").Output()
		if err != nil {
			return err
		}
		var s struct {
			Peers []struct {
				State          string
				Received, Sent int
			}
		}
		if err := json.Unmarshal(out, &s); err != nil {
			return err
		}
		up, exchanged := 0, 0
		for _, p := range s.Peers {
			if p.State == "established" {
				up++
			}
			exchanged += p.Received + p.Sent
		}
		if up < want || exchanged < routes {
			return fmt.Errorf("%d of %d sessions are up, %d of %d routes were exchanged: %s", up, want, exchanged, routes, out)
		}
		return nil
	})
}

const allFour = "20: 10.0.1.1 10.0.1.2 10.0.1.3 10.0.1.4"

func (u *upstream) end(p *lab.Process, how func() error) {
	u.t.Helper()
	if err := how(); err != nil {
		u.t.Error(err)
	}
	<-p.Done()
}

// TestRouterRestarts kills the router's process, and stops it as for an upgrade, under
// traffic: no packet is lost, and no flow changes its load balancer.
func TestRouterRestarts(t *testing.T) {
	u := newUpstream(t)
	u.reflector("reflector", "10.0.0.109", "10.0.0.109")
	u.reflector("second", "10.0.0.108", "10.0.0.109")
	args := []string{"--router-id", "10.0.0.110", "--peer", "10.0.0.109,10.0.0.108"}
	router := u.router(args...)
	u.speak("10.128.0.0/24")
	u.ask(allFour)
	again := func(how func() error) {
		u.end(router, how)
		router = u.router(args...)
		u.peersUp("router", 2, 2*4)
		time.Sleep(time.Second) // until it would remove routes that it wrongly considers stale
	}
	u.unharmed("SIGKILL of the router", false, func() { again(router.Kill) })
	u.unharmed("SIGTERM of the router", false, func() { again(func() error { return router.Signal(unix.SIGTERM) }) })
	u.until(allFour)
}

// TestReflectorsDie kills either of two reflectors, with one cluster ID and with two, in
// front of three router implementations: next hops are not duplicated, no packet is lost,
// and no flow changes its load balancer.
func TestReflectorsDie(t *testing.T) {
	for _, router := range []string{"fairlead", "frr", "bird"} {
		for _, cluster := range []string{"one cluster id", "two cluster ids"} {
			t.Run(router+", "+cluster, func(t *testing.T) {
				u := newUpstream(t)
				second := "10.0.0.109"
				if cluster == "two cluster ids" {
					second = "10.0.0.108"
				}
				reflectors := []*lab.Process{u.reflector("reflector", "10.0.0.109", "10.0.0.109"), u.reflector("second", "10.0.0.108", second)}
				if router == "fairlead" {
					u.router("--router-id", "10.0.0.110", "--peer", "10.0.0.109,10.0.0.108")
				} else {
					u.foreign(interop.Kind(router))
				}
				u.speak("10.128.0.0/24")
				u.ask(allFour)
				u.peersUp("reflector", 5, 4+4)
				u.peersUp("second", 5, 4+4)
				u.unharmed("first reflector killed", false, func() {
					u.end(reflectors[0], reflectors[0].Kill)
					time.Sleep(time.Second)
					u.reflector("reflector", "10.0.0.109", "10.0.0.109")
					u.peersUp("reflector", 5, 4+4)
				})
				u.until(allFour)
				u.unharmed("second reflector killed", false, func() {
					u.end(reflectors[1], reflectors[1].Kill)
					time.Sleep(time.Second)
				})
				u.until(allFour)
			})
		}
	}
}

// foreign runs FRR or BIRD as in docs/router.md, except for the services' prefix.
func (u *upstream) foreign(kind interop.Kind) {
	u.t.Helper()
	files := map[string]string{}
	names := []string{"bird.conf"}
	if kind == interop.FRR {
		names = []string{"bgpd.conf", "bfdd.conf"}
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "router", name))
		if err != nil {
			u.t.Fatal(err)
		}
		files[name] = strings.NewReplacer("10.1.0.0/16", "10.128.0.0/16", "log syslog", "log stderr").Replace(string(text))
	}
	d, err := interop.Start(u.l.Host("router").Namespace(), kind, interop.Config{
		AS: 65021, RouterID: netip.MustParseAddr("10.0.0.110"), BFD: true, Files: files,
		Peers: []interop.Peer{{Address: netip.MustParseAddr("10.0.0.109")}},
	})
	if err != nil {
		if strings.Contains(err.Error(), "install Debian's package") {
			u.t.Skip(err)
		}
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		if u.t.Failed() {
			u.t.Log(d.Log())
		}
		d.Stop()
	})
}

// TestShadowRouterIsKilled kills the process that makes FRR's routes resilient: what it
// wrote to the kernel is removed, and packets use FRR's own routes.
func TestShadowRouterIsKilled(t *testing.T) {
	u := newUpstream(t)
	u.reflector("reflector", "10.0.0.109", "10.0.0.109")
	u.reflector("second", "10.0.0.108", "10.0.0.109")
	u.foreign(interop.FRR)
	u.speak("10.128.0.0/24")
	u.until(allFour)
	shadow := u.router("--shadow-protocol", "bgp", "--accept-prefixes", "10.128.0.0/16")
	both := strings.Replace(allFour, "20:", "10:", 1) + "; " + allFour
	u.ask(both)
	u.unharmed("SIGKILL of the router next to FRR", true, func() {
		u.end(shadow, shadow.Kill)
		u.until(allFour)
	})
	shadow = u.router("--shadow-protocol", "bgp")
	u.until(both)
	u.unharmed("SIGTERM of the router next to FRR", true, func() {
		u.end(shadow, func() error { return shadow.Signal(unix.SIGTERM) })
		u.until(allFour)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := u.flows.Held(ctx, u.before); err != nil || u.flows.Lost > 0 {
		t.Errorf("after all %d datagrams are lost, error %v", u.flows.Lost, err)
	}
}
