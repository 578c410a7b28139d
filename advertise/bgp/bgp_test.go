package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
)

// These tests run all roles in this process, on loopback addresses:
//
//	speakers 127.21.1.x ── reflector 127.21.0.109:port ── router 127.21.0.110
//
// Tests that need links, kernels and kills are in netns_test.go.
var (
	reflectorAddr = netip.MustParseAddr("127.21.0.109")
	routerAddr    = netip.MustParseAddr("127.21.0.110")
	speakers      = netip.MustParsePrefix("127.21.1.0/24")
	service       = netip.MustParsePrefix("10.1.1.0/24")
	service6      = netip.MustParsePrefix("fd00:1:1::/64")
)

const testAS = 65021

// Constants of package engine on which expectations depend.
const (
	settled           = 500 * time.Millisecond
	refreshEvery      = time.Second
	refusedRetry      = 2 * time.Second
	connectBurst      = 30
	connectsPerSecond = 1
	logBurst          = 200
)

// patient is the BFD timing between roles in one process, which may be silent for a
// second on a busy machine.
var patient = bfd.Timing{Interval: time.Second}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	if os.Getenv("FAIRLEAD_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func startReflector(t *testing.T, port uint16, more ...func(*ReflectorConfig)) *Reflector {
	t.Helper()
	c := ReflectorConfig{AS: testAS, RouterID: reflectorAddr, Listen: []netip.Addr{reflectorAddr}, Port: port, Log: testLog(t),
		Groups: []NeighborGroup{
			{Name: "balancers", Prefixes: []netip.Prefix{speakers}, BFD: true, Timing: patient},
			{Name: "router", Prefixes: []netip.Prefix{netip.PrefixFrom(routerAddr, 32)}, SendMax: 64, BFD: true, Timing: patient},
		}}
	for _, f := range more {
		f(&c)
	}
	r, err := NewReflector(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func startSpeaker(t *testing.T, local string, port uint16, more ...func(*SpeakerConfig)) *Speaker {
	t.Helper()
	c := SpeakerConfig{AS: testAS, LocalAddress: netip.MustParseAddr(local), Log: testLog(t),
		Peers: []PeerConfig{{Address: reflectorAddr, Port: port, BFD: true, Timing: patient}}}
	for _, f := range more {
		f(&c)
	}
	s, err := NewSpeaker(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func startRouter(t *testing.T, port uint16) (*Router, chan []advertise.RouteSet) {
	t.Helper()
	ch := make(chan []advertise.RouteSet, 100)
	r, err := NewRouter(RouterConfig{AS: testAS, LocalAddress: routerAddr, Log: testLog(t),
		Peers: []PeerConfig{{Address: reflectorAddr, Port: port, BFD: true, Timing: patient}}}, func(rs []advertise.RouteSet) { ch <- rs })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			r.Close()
			close(closed)
		}()
		for { // it may be about to send what nobody has read
			select {
			case <-ch:
			case <-closed:
				return
			}
		}
	})
	return r, ch
}

func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(start)
}

func show(sets []advertise.RouteSet) string {
	var b strings.Builder
	for _, s := range sets {
		b.WriteString(s.Prefix.String())
		for i, nh := range s.NextHops {
			b.WriteString(" " + nh.String())
			if len(s.Weights) > 0 {
				fmt.Fprintf(&b, "*%d", s.Weights[i])
			}
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func routeVia(prefix netip.Prefix, nh string) route.Route {
	return route.Route{Prefix: prefix, NextHop: netip.MustParseAddr(nh)}
}

func TestSpeakersToRouter(t *testing.T) {
	const port = 20179
	startReflector(t, port)
	router, _ := startRouter(t, port)
	table := func(want string) func() bool {
		return func() bool { rs, _ := router.Routes(); return show(rs) == want }
	}
	start := time.Now()
	one := startSpeaker(t, "127.21.1.1", port)
	if err := one.Set([]route.Route{routeVia(service, "10.0.0.105"), routeVia(service6, "fd00::105")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "first route", table("10.1.1.0/24 10.0.0.105; fd00:1:1::/64 fd00::105"))
	t.Logf("speaker started to route at router: %s", time.Since(start))

	two := startSpeaker(t, "127.21.1.2", port)
	if err := two.AwaitEstablished(context.Background()); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if err := two.Set([]route.Route{routeVia(service, "10.0.0.104")}); err != nil {
		t.Fatal(err)
	}
	t.Logf("Set took %s", time.Since(start))
	eventually(t, "second next hop", table("10.1.1.0/24 10.0.0.104 10.0.0.105; fd00:1:1::/64 fd00::105"))
	t.Logf("announce to route: %s", time.Since(start))

	if ps := two.Peers(); len(ps) != 1 || ps[0].State != "established" || ps[0].Sent != 1 || ps[0].Received != 0 {
		t.Errorf("peers of the second speaker: %+v", ps)
	}
	eventually(t, "BFD up", func() bool { return two.Peers()[0].BFD == "up" })

	start = time.Now()
	if err := one.Set([]route.Route{routeVia(service6, "fd00::105")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "withdrawal", table("10.1.1.0/24 10.0.0.104; fd00:1:1::/64 fd00::105"))
	t.Logf("withdraw to route: %s", time.Since(start))
	one.Close()
	eventually(t, "all of the first gone", table("10.1.1.0/24 10.0.0.104"))
	if err := one.Set(nil); err == nil {
		t.Error("a closed speaker took routes")
	}
}

func TestReflectorRestart(t *testing.T) {
	const port = 20180
	first := startReflector(t, port)
	router, _ := startRouter(t, port)
	s := startSpeaker(t, "127.21.1.1", port)
	if err := s.Set([]route.Route{routeVia(service, "10.0.0.105")}); err != nil {
		t.Fatal(err)
	}
	there := func() bool { rs, _ := router.Routes(); return show(rs) == "10.1.1.0/24 10.0.0.105" }
	eventually(t, "route", there)
	first.Close()
	eventually(t, "no route", func() bool { rs, _ := router.Routes(); return len(rs) == 0 })
	eventually(t, "refusal in words", func() bool { return strings.Contains(s.Peers()[0].LastError, "refuses connections") })
	start := time.Now()
	startReflector(t, port)
	eventually(t, "route again", there)
	// Counters survive sessions.
	if p := s.Peers()[0]; p.Flaps != 1 || p.UpdatesSent < 2 || p.Sent != 1 {
		t.Errorf("counted %+v, want one flap, and the route sent twice", p)
	}
	// The reason why a peer left is cleared when it is back.
	if p := s.Peers()[0]; p.State != session.Established || p.LastError != "" {
		t.Errorf("a peer that is back is %s: %q", p.State, p.LastError)
	}
	t.Logf("reflector back to route at router: %s", time.Since(start))
}

// Load balancers may peer with the router directly, and be in their own AS.
func TestDirectlyAndAcrossASes(t *testing.T) {
	const port, foreignAS = 20186, 65100
	var got atomic.Pointer[[]advertise.RouteSet]
	r, err := NewRouter(RouterConfig{AS: testAS, RouterID: reflectorAddr, Log: testLog(t), Listen: []netip.Addr{reflectorAddr}, Port: port,
		Groups: []NeighborGroup{
			{Name: "balancers", Prefixes: []netip.Prefix{netip.MustParsePrefix("127.21.2.0/24")}, BFD: true},
			{Name: "others", Prefixes: []netip.Prefix{speakers}, AS: foreignAS},
		}}, func(rs []advertise.RouteSet) { got.Store(&rs) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, local := range []string{"127.21.1.1", "127.21.1.2"} {
		s := startSpeaker(t, local, port, func(c *SpeakerConfig) { c.AS, c.Peers[0].AS = foreignAS, testAS })
		if err := s.Set([]route.Route{routeVia(service, "10.0.0.10"+local[len(local)-1:])}); err != nil {
			t.Fatal(err)
		}
	}
	inside := startSpeaker(t, "127.21.2.1", port)
	if err := inside.Set([]route.Route{routeVia(service6, "fd00::105")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "routes of all three", func() bool {
		rs := got.Load()
		return rs != nil && show(*rs) == "10.1.1.0/24 10.0.0.101 10.0.0.102; fd00:1:1::/64 fd00::105"
	})
}

// A reflector passes on the routes of load balancers in another AS, each with its own
// next hop.
func TestReflectAcrossASes(t *testing.T) {
	const port, foreignAS = 20187, 65100
	startReflector(t, port, func(c *ReflectorConfig) { c.Groups[0].AS = foreignAS })
	router, _ := startRouter(t, port)
	for _, local := range []string{"127.21.1.1", "127.21.1.2"} {
		s := startSpeaker(t, local, port, func(c *SpeakerConfig) { c.AS, c.Peers[0].AS = foreignAS, testAS })
		if err := s.Set([]route.Route{routeVia(service, "10.0.0.10"+local[len(local)-1:])}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both next hops", func() bool {
		rs, _ := router.Routes()
		return show(rs) == "10.1.1.0/24 10.0.0.101 10.0.0.102"
	})
}

// A router with an address within the clients' prefix receives routes like any other.
func TestReflectToRouterAmongClients(t *testing.T) {
	const port = 20188
	startReflector(t, port, func(c *ReflectorConfig) { c.Groups[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	router, _ := startRouter(t, port)
	s := startSpeaker(t, "127.21.1.1", port)
	if err := s.Set([]route.Route{routeVia(service, "10.0.0.101")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next hop", func() bool {
		rs, _ := router.Routes()
		return show(rs) == "10.1.1.0/24 10.0.0.101"
	})
}
