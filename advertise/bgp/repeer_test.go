package bgp

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
)

// at configures an additional reflector.
func at(addr string) func(*ReflectorConfig) {
	return func(c *ReflectorConfig) {
		c.RouterID = netip.MustParseAddr(addr)
		c.Listen = []netip.Addr{c.RouterID}
	}
}

func peerStates(s *Speaker) string {
	var all []string
	for _, p := range s.Peers() {
		all = append(all, p.Address+" "+p.State)
	}
	return strings.Join(all, ", ")
}

// A peer that must be discovered on a link is listed, with the reason why it is not
// there, and disappears when it is removed. Others are not affected.
func TestSetPeersThatAreSought(t *testing.T) {
	const port = 20194
	startReflector(t, port)
	speaker := startSpeaker(t, "127.21.1.8", port, func(c *SpeakerConfig) { c.Peers = nil })
	known := PeerConfig{Address: reflectorAddr, Port: port}
	nowhere := PeerConfig{Name: "tor", SourceInterface: "nowhere0"}
	if err := speaker.SetPeers([]PeerConfig{known, nowhere}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no such interface", func() bool {
		p := speaker.Peers()
		return len(p) == 2 && p[0].Name == "tor" && strings.Contains(p[0].LastError, "no such network interface") && p[1].State == session.Established
	})
	since := speaker.Peers()[1].Since
	if err := speaker.SetPeers([]PeerConfig{known}); err != nil {
		t.Fatal(err)
	}
	if p := speaker.Peers(); len(p) != 1 || p[0].State != session.Established || !p[0].Since.Equal(since) {
		t.Errorf("without it: %+v", p)
	}
}

// A peer is also listed between its discovery or configuration and the first dial, and
// while it is dialed again.
func TestPeersAboutToBeDialled(t *testing.T) {
	const port = 20199
	known := PeerConfig{Address: reflectorAddr, Port: port}
	speaker := startSpeaker(t, "127.21.1.8", port, func(c *SpeakerConfig) {
		c.Peers = []PeerConfig{known, {Name: "tor", SourceInterface: "nowhere0", AS: 65110}}
	})
	speaker.peering.Lock()
	speaker.mu.Lock()
	speaker.seekers["nowhere0"].found = netip.MustParseAddr("fe80::1%nowhere0")
	speaker.configured = append(speaker.configured, PeerConfig{Address: netip.MustParseAddr("127.21.0.107")})
	speaker.mu.Unlock()
	p := speaker.Peers()
	if len(p) != 3 || p[0].Name != "tor" || p[0].Address != "%nowhere0" || p[0].AS != 65110 || p[0].State != session.Idle ||
		p[1].Name != "127.21.0.107" || p[1].AS != testAS || p[1].State != session.Idle || p[2].Address != reflectorAddr.String() {
		t.Errorf("peers %+v", p)
	}
	speaker.peering.Unlock()
}

func TestSetPeers(t *testing.T) {
	const port = 20191
	first := startReflector(t, port)
	second := startReflector(t, port, at("127.21.0.108"))
	speaker := startSpeaker(t, "127.21.1.7", port, func(c *SpeakerConfig) { c.Peers = nil })
	if err := speaker.Set([]route.Route{routeVia(service, "10.0.0.107")}); err != nil {
		t.Fatal(err)
	}
	wantRoutes := func(r *Reflector, want string) {
		t.Helper()
		eventually(t, "the reflector receives "+want, func() bool { rs, _ := r.Routes(); return show(rs) == want })
	}
	states := func(want string) {
		t.Helper()
		eventually(t, want, func() bool { return peerStates(speaker) == want })
	}
	set := func(peers ...PeerConfig) {
		t.Helper()
		if err := speaker.SetPeers(peers); err != nil {
			t.Fatal(err)
		}
	}
	a := PeerConfig{Address: reflectorAddr, Port: port, BFD: true, Timing: patient}
	b := PeerConfig{Address: netip.MustParseAddr("127.21.0.108"), Port: port}
	set(a)
	wantRoutes(first, "10.1.1.0/24 10.0.0.107")
	wantRoutes(second, "")
	set(a, b)
	wantRoutes(second, "10.1.1.0/24 10.0.0.107")
	eventually(t, "BFD up", func() bool { return speaker.Peers()[1].BFD == "up" })
	states("127.21.0.108 established, 127.21.0.109 established")
	since := speaker.Peers()[1].Since

	// A different hold time means a new session; the first peer's session is kept.
	before := speaker.Peers()[0].Since
	b.HoldTime = 30 * time.Second
	set(b, a)
	eventually(t, "a new session", func() bool { p := speaker.Peers()[0]; return p.State == session.Established && p.Since.After(before) })
	wantRoutes(second, "10.1.1.0/24 10.0.0.107")

	// A peer that is removed is notified, and immediately removes our routes.
	set(a)
	states("127.21.0.109 established")
	wantRoutes(second, "")
	eventually(t, "the reason", func() bool {
		return slices.ContainsFunc(second.Peers(), func(p advertise.Peer) bool {
			return strings.Contains(p.LastError, "127.21.1.7 closed the session: administrative shutdown")
		})
	})
	if p := speaker.Peers()[0]; p.Since != since || p.LastError != "" {
		t.Errorf("the session that was to stay: %+v, up since %s before", p, since)
	}

	set()
	states("")
	wantRoutes(first, "")
	set(a)
	wantRoutes(first, "10.1.1.0/24 10.0.0.107")
}

// TestSetPeersWhileConnecting removes peers in any state.
func TestSetPeersWhileConnecting(t *testing.T) {
	const port = 20192
	startReflector(t, port)
	speaker := startSpeaker(t, "127.21.1.8", port, func(c *SpeakerConfig) { c.Peers = nil })
	a := PeerConfig{Address: reflectorAddr, Port: port, BFD: true, Timing: patient}
	nobody := PeerConfig{Address: netip.MustParseAddr("127.21.0.107"), Port: port}
	for i := range 40 {
		if err := speaker.SetPeers([]PeerConfig{a, nobody}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 300 * time.Microsecond)
		if err := speaker.SetPeers(nil); err != nil {
			t.Fatal(err)
		}
		if got := peerStates(speaker); got != "" {
			t.Fatalf("there are still %s", got)
		}
	}
	if err := speaker.SetPeers([]PeerConfig{a}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := speaker.AwaitEstablished(ctx); err != nil {
		t.Error(err)
	}
}

func TestSetPeersRefuses(t *testing.T) {
	const port = 20193
	startReflector(t, port)
	speaker := startSpeaker(t, "127.21.1.9", port)
	if err := speaker.AwaitEstablished(context.Background()); err != nil {
		t.Fatal(err)
	}
	for want, peers := range map[string][]PeerConfig{
		"peers[0].address: 224.0.0.1 is not a valid neighbor": {{Address: netip.MustParseAddr("224.0.0.1")}},
		"peers[1].address: 10.0.0.1 is peers[0] already": {
			{Address: netip.MustParseAddr("10.0.0.1")}, {Address: netip.MustParseAddr("10.0.0.1"), Port: 1179}},
	} {
		if err := speaker.SetPeers(peers); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if got := peerStates(speaker); got != "127.21.0.109 established" {
		t.Errorf("a refused set of peers left %q", got)
	}
	if err := speaker.Close(); err != nil {
		t.Fatal(err)
	}
	if err := speaker.SetPeers(nil); err == nil {
		t.Error("a closed speaker takes peers")
	}
}

// TestSetPeersMovesRoutes moves a load balancer from one reflector to another, all in
// separate namespaces: the router has its route as long as there is any.
func TestSetPeersMovesRoutes(t *testing.T) {
	l := paper(t)
	enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
	enact(t, l.Host("second"), reflectorPart("10.0.0.108"))
	enact(t, l.Host("router"), routerPart("10.0.0.109", "10.0.0.108")).untilUp()
	kernel := watch(t, l)
	balancer := enact(t, l.Host("pod-105"), speakerPart(5, "10.0.0.109"))
	kernel.until(one, time.Now())
	balancer.untilUp()
	peered := func(want ...string) {
		t.Helper()
		r := balancer.Send(order{Peers: peers("overlay", want...)})
		if r.Error != "" || len(r.Peers) != len(want) {
			t.Fatalf("with peers %v: %s, %+v", want, r.Error, r.Peers)
		}
		balancer.untilUp()
		kernel.until(one, time.Now())
	}
	peered("10.0.0.109", "10.0.0.108")
	peered("10.0.0.108")
	peered("10.0.0.108", "10.0.0.109")
	if r := balancer.Send(order{Peers: []PeerConfig{}}); r.Error != "" || len(r.Peers) != 0 {
		t.Fatalf("without peers: %+v", r)
	}
	kernel.until("", time.Now())
	peered("10.0.0.109")
}
