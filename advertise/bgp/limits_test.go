package bgp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

func TestTwinsAreRefusedByName(t *testing.T) {
	const port = 20195
	r := startReflector(t, port)
	one := startSpeaker(t, "127.21.1.1", port)
	eventually(t, "session", func() bool { return one.Peers()[0].State == session.Established })
	twin := startSpeaker(t, "127.21.1.2", port, func(c *SpeakerConfig) { c.RouterID = netip.MustParseAddr("127.21.1.1") })
	wantError(t, r.Peers, "127.21.1.2", "127.21.1.2 is rejected: its router ID 127.21.1.1 is in use by 127.21.1.1")
	wantError(t, twin.Peers, "127.21.0.109", "or another neighbor of it, has the same router ID as this speaker")
	if p := one.Peers()[0]; p.State != session.Established {
		t.Errorf("the first of the twins: %+v", p)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other has it now", func() bool { return twin.Peers()[0].State == session.Established })
}

func TestMaxPeers(t *testing.T) {
	const port = 20196
	r := startReflector(t, port, func(c *ReflectorConfig) { c.Groups[0].MaxPeers = 2 })
	one, two := startSpeaker(t, "127.21.1.1", port), startSpeaker(t, "127.21.1.2", port)
	for _, s := range []*Speaker{one, two} {
		eventually(t, "session", func() bool { return s.Peers()[0].State == session.Established })
	}
	three := startSpeaker(t, "127.21.1.3", port)
	wantError(t, r.Peers, "127.21.1.3", "rejected 127.21.1.3: balancers already has the maximum of 2 neighbors; raise --max-clients")
	wantError(t, three.Peers, "127.21.0.109", "peer 127.21.0.109 rejected the session: maximum number of clients reached (see --max-clients there)")
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its place is free", func() bool { return three.Peers()[0].State == session.Established })
}

// A client that advertises more than permitted is disconnected, by name, and must stay
// away for a while. Its routes are removed, the others' routes stay.
func TestMaxPrefixes(t *testing.T) {
	const port = 20197
	r := startReflector(t, port, func(c *ReflectorConfig) { c.Groups[0].MaxPrefixes = 100 })
	router, _ := startRouter(t, port)
	good, bad := startSpeaker(t, "127.21.1.1", port), startSpeaker(t, "127.21.1.2", port)
	eventually(t, "session", func() bool { return bad.Peers()[0].State == session.Established })
	if err := good.Set([]route.Route{routeVia(service, "10.0.0.105")}); err != nil {
		t.Fatal(err)
	}
	if err := bad.Set(manyRoutes(1000)); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Peers, "127.21.1.2", "paths, a neighbor of balancers may send 100: disconnected for 1m0s")
	wantError(t, bad.Peers, "127.21.0.109", "peer 127.21.0.109 closed the session: maximum number of prefixes")
	eventually(t, "the good one's route alone", func() bool { rs, _ := router.Routes(); return show(rs) == "10.1.1.0/24 10.0.0.105" })
	// It continues to dial, and is only sent the reason.
	time.Sleep(refusedRetry)
	if got := bad.Peers()[0].State; got == session.Established {
		t.Error("it is back at once")
	}
	wantError(t, r.Peers, "127.21.1.2", "a neighbor of balancers may send 100")
}

// A router also disconnects a reflector that sends too much, and does not dial it again
// for a while. Another reflector's routes stay.
func TestMaxPrefixesOfRouter(t *testing.T) {
	const port = 20201
	calm, other := startReflector(t, port, at("127.21.0.108")), startReflector(t, port)
	router, err := NewRouter(RouterConfig{AS: testAS, LocalAddress: routerAddr, Log: testLog(t), MaxPrefixes: 100,
		Peers: []PeerConfig{{Address: reflectorAddr, Port: port}, {Address: netip.MustParseAddr("127.21.0.108"), Port: port}}}, func([]advertise.RouteSet) {})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	good := startSpeaker(t, "127.21.1.1", port, func(c *SpeakerConfig) { c.Peers[0].Address = netip.MustParseAddr("127.21.0.108") })
	bad := startSpeaker(t, "127.21.1.2", port)
	if err := good.Set([]route.Route{routeVia(service, "10.0.0.105")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "sessions", func() bool { return len(calm.Peers()) == 2 && bad.Peers()[0].State == session.Established })
	if err := bad.Set(manyRoutes(1000)); err != nil {
		t.Fatal(err)
	}
	wantError(t, router.Peers, "127.21.0.109", "may send 100: disconnected for 1m0s")
	eventually(t, "the other's route alone", func() bool { rs, _ := router.Routes(); return show(rs) == "10.1.1.0/24 10.0.0.105" })
	wantError(t, other.Peers, routerAddr.String(), "maximum number of prefixes") // the disconnect has reached its end, too: anything later would be another one
	before := other.Peers()
	time.Sleep(refusedRetry)
	for _, p := range router.Peers() {
		if up := p.State == session.Established; up != (p.Address == "127.21.0.108") {
			t.Errorf("some seconds later: %+v", p)
		}
	}
	if after := other.Peers(); after[0].Flaps != before[0].Flaps {
		t.Errorf("it is dialled again at once: %+v, was %+v", after[0], before[0])
	}
}

func manyRoutes(n int) (all []route.Route) {
	for i := range n {
		all = append(all, routeVia(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), 32), "10.0.0.106"))
	}
	return all
}

// A client that repeatedly sends nothing new is disconnected, too.
func TestTooManyUpdates(t *testing.T) {
	const port = 20198
	r := startReflector(t, port, func(c *ReflectorConfig) { c.Groups[0].MaxPrefixes = 10 })
	good, bad := startSpeaker(t, "127.21.1.1", port), startStray(t, netip.MustParseAddr("127.21.1.2"), port)
	eventually(t, "sessions", func() bool {
		return good.Peers()[0].State == session.Established && bad.row(r).State == session.Established
	})
	eventually(t, "the flood is cut", func() bool {
		for range 25 {
			bad.say(updateOf(usual, prefix24), rawbgp.Withdraw(netip.MustParseAddr("10.3.0.0"), 1))
		}
		return bad.row(r).State != session.Established
	})
	wantError(t, r.Peers, "127.21.1.2", "127.21.1.2 announced and withdrew more than 1000 routes within a minute: disconnected for 1m0s")
	if p := good.Peers()[0]; p.State != session.Established || p.LastError != "" {
		t.Errorf("a good client: %+v", p)
	}
}

// TestFloodOfBadSessions keeps opening hundreds of concurrent connections of every bad
// kind. Well-behaved clients keep their sessions, a change of theirs reaches the router's
// kernel, and the resources of the reflector stay limited.
//
//	good     10.0.1.1, .2        (with a password) ──┐
//	attacker 10.0.9.1 … .200, 10.0.1.200 … .250    ──┤ switch
//	reflector 10.0.0.109, router 10.0.0.110        ──┘
func TestFloodOfBadSessions(t *testing.T) {
	l := floodNetwork(t)
	reflector := enact(t, l.Host("reflector"), part{Reflector: &ReflectorConfig{AS: testAS, RouterID: netip.MustParseAddr("10.0.0.109"), Groups: []NeighborGroup{
		{Name: "balancers", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")}, Password: "overlay"},
		{Name: "others", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.9.0/24")}, HoldTime: 3 * time.Second, MaxPeers: 50},
		{Name: "router", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.110/32")}, SendMax: 8},
	}}})
	router := enact(t, l.Host("router"), part{Router: &RouterConfig{AS: testAS, LocalAddress: netip.MustParseAddr("10.0.0.110"),
		Peers: []PeerConfig{{Address: netip.MustParseAddr("10.0.0.109")}}}})
	var good []*player
	for i := 1; i <= 2; i++ {
		good = append(good, enact(t, l.Host("good"), part{Speaker: &SpeakerConfig{AS: testAS, LocalAddress: netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}),
			Peers: []PeerConfig{{Address: netip.MustParseAddr("10.0.0.109"), Password: "overlay"}}}, Routes: serviceVia(4 + i)}))
	}
	kernel := watch(t, l)
	kernel.until(two, time.Now())
	since := established(good...)
	before := resident(t, reflector.PID())

	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
	defer cancel()
	var tried, halfOpen atomic.Int64
	var attackers sync.WaitGroup
	for i := range 250 {
		from := netip.AddrFrom4([4]byte{10, 0, 9, byte(1 + i)})
		if i >= 200 {
			from = netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}) // where a password is required
		}
		attackers.Go(func() { attack(ctx, l.Host("attacker"), from, i%4, &tried, &halfOpen) })
	}
	for ctx.Err() == nil {
		good[1].Send(order{Set: []route.Route{}})
		start := time.Now()
		kernel.until(one, start)
		good[1].Send(order{Set: serviceVia(6)})
		kernel.until(two, start)
	}
	attackers.Wait()
	t.Logf("%d connections were tried, %d stayed open for a second", tried.Load(), halfOpen.Load())
	if tried.Load() < 250 {
		t.Errorf("only %d connections were tried", tried.Load())
	}
	if now := established(good...); now != since {
		t.Errorf("good sessions came up at %s, after the flood they are of %s", since, now)
	}
	if p := router.Query().Peers[0]; p.State != session.Established {
		t.Errorf("the router's session: %+v", p)
	}
	peers := reflector.Query().Peers
	if len(peers) > 260 {
		t.Errorf("%d neighbors are listed", len(peers))
	}
	eventually(t, "bad connections are over", func() bool {
		up := 0
		for _, p := range reflector.Query().Peers {
			if p.State != session.Idle {
				up++
			}
		}
		return up == 3
	})
	// Go's heap is twice the live data.
	if after := resident(t, reflector.PID()); after > before+256<<20 {
		t.Errorf("the reflector holds %d MiB, before the flood %d", after>>20, before>>20)
	} else {
		t.Logf("the reflector holds %d MiB, before the flood %d", after>>20, before>>20)
	}
}

func floodNetwork(t *testing.T) *lab.Lab {
	t.Helper()
	good := lab.HostSpec{Name: "good", Loopback: []string{"10.0.1.1/32", "10.0.1.2/32"}}
	attacker := lab.HostSpec{Name: "attacker"}
	for i := range 200 {
		attacker.Loopback = append(attacker.Loopback, fmt.Sprintf("10.0.9.%d/32", 1+i))
	}
	for i := 200; i < 250; i++ {
		attacker.Loopback = append(attacker.Loopback, fmt.Sprintf("10.0.1.%d/32", i))
	}
	top := lab.Topology{Hosts: []lab.HostSpec{good, attacker, {Name: "reflector"}, {Name: "router"}}, Switches: []lab.SwitchSpec{{Name: "nodenet"}}}
	for host, addr := range map[string]string{"good": "10.0.2.1", "attacker": "10.0.2.2", "reflector": "10.0.0.109", "router": "10.0.0.110"} {
		top.Links = append(top.Links, lab.Link{A: lab.At(host, "eth0", addr+"/16"), B: lab.Port("nodenet")})
	}
	return labtest.Build(t, top)
}

// attack keeps connecting in one bad way: garbage, silence, a session that reads nothing
// and sends no keepalives, or half a message.
func attack(ctx context.Context, h *lab.Host, from netip.Addr, kind int, tried, held *atomic.Int64) {
	for ctx.Err() == nil {
		tried.Add(1)
		dial, cancel := context.WithTimeout(ctx, time.Second)
		c, err := h.Dial(dial, from, netip.MustParseAddrPort("10.0.0.109:179"))
		cancel()
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		began := time.Now()
		_ = c.SetDeadline(began.Add(2 * time.Second))
		switch kind {
		case 0:
			junk := make([]byte, 8192)
			for i := range junk {
				junk[i] = byte(rand.Uint32())
			}
			_, _ = c.Write(junk)
		case 2:
			open, _ := pkt.NewBGPOpenMessage(testAS, 180, from, nil)
			hello, _ := open.Serialize()
			keepalive, _ := pkt.NewBGPKeepAliveMessage().Serialize()
			_, _ = c.Write(append(hello, keepalive...))
			sleep.About(ctx, 2*time.Second)
		case 3:
			open, _ := pkt.NewBGPOpenMessage(testAS, 180, from, nil)
			hello, _ := open.Serialize()
			_, _ = c.Write(hello[:20])
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			held.Add(1)
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.Close()
	}
}

// established returns when the speakers' sessions were established.
func established(all ...*player) string {
	var words []string
	for _, a := range all {
		for _, p := range a.Query().Peers {
			words = append(words, p.State+" "+p.Since.Format(time.RFC3339Nano))
		}
	}
	return strings.Join(words, ", ")
}

// resident returns the resident memory of a process, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
