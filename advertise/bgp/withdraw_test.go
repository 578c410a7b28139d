package bgp

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	model "github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
	"github.com/fairlead/fairlead/reconciler"
	api "github.com/fairlead/fairlead/source"
)

// silenceSeen is how long BFD takes to detect silence in TestWithdrawing: long enough for
// a busy machine to cut a link and withdraw a route before that.
const silenceSeen = bfd.DefaultMultiplier * time.Second

// waited returns the distinct peers and reasons of unconfirmed withdrawals.
func waited(all []advertise.Withdrawal) string {
	var words []string
	for _, w := range all {
		words = append(words, w.From+": "+w.Reason)
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), "; ")
}

// TestWithdrawing withdraws from live peers, from one that has died silently, and from
// one whose silence has just been noticed; with BFD and without.
func TestWithdrawing(t *testing.T) {
	l := paper(t)
	both := []string{"10.0.0.108", "10.0.0.109"}
	enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
	enact(t, l.Host("second"), reflectorPart("10.0.0.108"))
	slow := speakerPart(5, both...)
	for i := range slow.Speaker.Peers {
		slow.Speaker.Peers[i].Timing.Interval = silenceSeen / bfd.DefaultMultiplier
	}
	watched := enact(t, l.Host("pod-105"), slow)
	bare := speakerPart(6, both...)
	for i := range bare.Speaker.Peers {
		bare.Speaker.Peers[i].BFD = false
	}
	unwatched := enact(t, l.Host("pod-106"), bare)
	watched.untilUp()
	eventually(t, "sessions without BFD", func() bool {
		ps := unwatched.Query().Peers
		return len(ps) == 2 && ps[0].State == session.Established && ps[1].State == session.Established
	})
	withdraw := func(p *player) []advertise.Withdrawal { return p.Send(order{Set: []route.Route{}}).Waits }
	until := func(what, want string, p *player) time.Duration {
		t.Helper()
		return eventually(t, what, func() bool { return waited(p.Query().Waits) == want })
	}
	if len(withdraw(watched)) == 0 {
		t.Error("confirmed before any peer can have received it")
	}
	until("both have received it", "", watched)
	withdraw(unwatched)
	until("both unwatched peers have received it", "", unwatched)
	watched.Send(order{Set: serviceVia(5)})
	unwatched.Send(order{Set: serviceVia(6)})
	time.Sleep(2 * settled)

	if err := l.Cut("second", "eth0"); err != nil {
		t.Fatal(err)
	}
	withdraw(watched)
	withdraw(unwatched)
	const quiet = "BGP peer 10.0.0.108: "
	until("one has", quiet+"the peer has not acknowledged the withdrawal", watched)
	until("one has, of those not watched", quiet+"the peer has not acknowledged the withdrawal", unwatched)
	took := until("its silence is noticed, and others' time to notice", quiet+"BFD ended its session; its neighbors may not have detected the failure yet", watched)
	took += until("all peers that could receive it", "", watched)
	if took < bfd.DefaultInterval {
		t.Errorf("a silent peer was waited for for %v, less than it takes others to notice", took)
	}
	if took := until("the hold time of the session without BFD is over", "", unwatched); took < time.Second {
		t.Errorf("a silent peer without BFD was waited for for %v", took)
	}
}

// frozen is a peer that accepts a session and then stops reading, but continues to send
// keepalives if requested.
type frozen struct {
	addr  netip.AddrPort
	ended chan struct{}
}

func freeze(t *testing.T, at string, alive bool, read func(net.Conn)) *frozen {
	t.Helper()
	f := &frozen{addr: netip.MustParseAddrPort(at), ended: make(chan struct{})}
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { // a window that closes soon
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	}}
	l, err := small.Listen(t.Context(), "tcp4", at)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer close(f.ended)
		defer c.Close()
		id := f.addr.Addr().As4()
		_, _ = c.Write(slices.Concat(openOf(4, testAS, 90, id), rawbgp.Message(pkt.BGP_MSG_KEEPALIVE, nil)))
		read(c)
		for alive {
			if _, err := c.Write(rawbgp.Message(pkt.BGP_MSG_KEEPALIVE, nil)); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return f
}

// windowClosed reports whether a peer has not acknowledged anything for a while, although
// there is something to acknowledge.
func windowClosed(t *testing.T, peer netip.AddrPort) bool {
	before := unacknowledged(t, peer)
	time.Sleep(100 * time.Millisecond)
	return before > 0 && unacknowledged(t, peer) >= before
}

// unacknowledged returns how many octets wait in our connection to a peer, according to
// the kernel (Linux's net/ipv4/tcp_ipv4.c: remote address and transmit queue).
func unacknowledged(t *testing.T, peer netip.AddrPort) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	a := peer.Addr().As4()
	remote := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a[:]), peer.Port())
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && f[2] == remote {
			_, _ = fmt.Sscanf(f[4], "%x:", &n)
		}
	}
	return n
}

const stuckHold = 6 * time.Second

// withStuck returns a speaker with a live reflector, behind which is a router, and a peer
// named stuck. The function makes that peer stop reading, closes its window, and returns
// when it has last read something: the hold time may start immediately.
func withStuck(t *testing.T, port uint16, at string, local string) (s *Speaker, r *Router, stick func() time.Time) {
	t.Helper()
	startReflector(t, port)
	r, _ = startRouter(t, port)
	stop := make(chan struct{})
	stuck := freeze(t, at, true, func(c net.Conn) {
		for b := make([]byte, 512); ; {
			select {
			case <-stop:
				return
			default:
			}
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, _ = c.Read(b)
		}
	})
	s = startSpeaker(t, local, port, func(c *SpeakerConfig) {
		c.Peers = append(c.Peers, PeerConfig{Name: "stuck", Address: stuck.addr.Addr(), Port: stuck.addr.Port(), HoldTime: stuckHold})
	})
	eventually(t, "sessions", func() bool {
		return !slices.ContainsFunc(s.Peers(), func(p advertise.Peer) bool { return p.State != session.Established })
	})
	return s, r, func() time.Time {
		t.Helper()
		eventually(t, "the routes of both", func() bool { p := s.Peers(); return p[0].Sent == p[1].Sent && p[0].Sent == uint32(len(s.Announced())) })
		time.Sleep(2 * settled)
		since := time.Now()
		close(stop)
		fill := make([]route.Route, 100)
		for med := uint32(1); !windowClosed(t, stuck.addr); med++ { // until changes of attributes fill it
			for i := range fill {
				fill[i] = routeVia(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 3, 0, byte(i)}), 32), "10.0.0.106")
				fill[i].MED, fill[i].Peers = med, "stuck"
			}
			if err := s.Set(append(slices.Collect(maps.Values(withoutFill(s.Announced()))), fill...)); err != nil {
				t.Fatal(err)
			}
		}
		return since
	}
}

// withoutFill returns the routes that withStuck has not made.
func withoutFill(all map[netip.Prefix]route.Route) map[netip.Prefix]route.Route {
	maps.DeleteFunc(all, func(_ netip.Prefix, r route.Route) bool { return r.Peers == "stuck" })
	return all
}

// TestPeerThatReadsNothing withdraws a route from a peer with a closed receive window,
// next to a live one: Set does not wait, the withdrawal counts as unconfirmed, and the
// session ends after the hold time (RFC 9687). Messages to the other peer are not
// delayed.
func TestPeerThatReadsNothing(t *testing.T) {
	s, router, stick := withStuck(t, 20230, "127.21.4.16:20231", "127.21.1.9")
	all := manyRoutes(1000)
	if err := s.Set(all); err != nil {
		t.Fatal(err)
	}
	has := func(n int) func() bool {
		return func() bool { rs, _ := router.Routes(); return len(rs) == n }
	}
	eventually(t, "the living one has the routes", has(len(all)))
	since := stick()
	began := time.Now()
	if err := s.Set(all[1:]); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	eventually(t, "the live peer receives it", has(len(all)-1))
	t.Logf("Set took %v; the living one had the withdrawal after %v", took, time.Since(began))
	if took > stuckHold/2 {
		t.Errorf("Set waited for %v", took)
	}
	from := func() string { return waited(s.Withdrawing()) }
	eventually(t, "only the other is waited for", func() bool { return !strings.Contains(from(), reflectorAddr.String()) })
	if got := from(); !strings.HasPrefix(got, "BGP peer stuck: ") {
		t.Errorf("waited for is %q", got)
	}
	eventually(t, "it is given up", func() bool { return from() == "" })
	if took := time.Since(since); took < stuckHold {
		t.Errorf("it was given up after %v, before the hold time of %v", took, stuckHold)
	}
	eventually(t, "the reason", func() bool {
		return slices.ContainsFunc(s.Peers(), func(p advertise.Peer) bool {
			return p.Name == "stuck" && strings.Contains(p.LastError, fmt.Sprintf("hold time of %s", stuckHold))
		})
	})
}

// TestServicesWithAPeerThatReadsNothing runs the loop with such a peer: the frontend of
// a deleted Service stays programmed until that peer is given up; meanwhile another
// Service is added and advertised to the live one.
func TestServicesWithAPeerThatReadsNothing(t *testing.T) {
	s, router, stick := withStuck(t, 20232, "127.21.4.17:20233", "127.21.1.10")
	plane, services := fake.New(), make(chan []*model.Service, 1)
	loop := reconciler.New(reconciler.Config{
		Source: source(services), DataPlane: plane, Announcer: s, Node: plan.Node{Name: "lb1", NextHop4: netip.MustParseAddr("10.0.0.105")},
		Linger: 100 * time.Millisecond, Resync: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- loop.Run(ctx) }()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	routes := func(what, want string) time.Duration {
		t.Helper()
		return eventually(t, what, func() bool { rs, _ := router.Routes(); return show(rs) == want })
	}
	holds := func() (vips string) {
		list, _ := plane.List()
		for _, f := range list {
			vips += f.VIP.String() + " "
		}
		return vips
	}
	services <- []*model.Service{web(1), web(2)}
	routes("two Services", "10.1.1.1/32 10.0.0.105; 10.1.2.1/32 10.0.0.105")
	since := stick()
	began := time.Now()
	services <- []*model.Service{web(2), web(3)}
	took := routes("one went, one came", "10.1.2.1/32 10.0.0.105; 10.1.3.1/32 10.0.0.105")
	t.Logf("the living one had the change after %v", took)
	if took > stuckHold/2 {
		t.Errorf("the change took %v", took)
	}
	for holds() == "10.1.1.1 10.1.2.1 10.1.3.1 " && time.Since(began) < time.Minute {
		time.Sleep(10 * time.Millisecond)
	}
	if took := time.Since(since); took < stuckHold || holds() != "10.1.2.1 10.1.3.1 " {
		t.Errorf("after %v held are %s", took, holds())
	}
}

// source publishes what is sent to it.
type source chan []*model.Service

func (s source) Run(ctx context.Context, publish func(api.Snapshot)) error {
	for {
		select {
		case services := <-s:
			publish(api.Snapshot{Services: services})
		case <-ctx.Done():
			return nil
		}
	}
}

func web(i byte) *model.Service {
	return &model.Service{
		ID: model.ID{Namespace: "default", Name: fmt.Sprint("web", i)}, Method: model.Tunnel, Scheduler: model.Maglev, RingSize: 251, Panic: true,
		Health: model.HealthCheck{Kind: model.CheckNone},
		Frontends: []model.Frontend{{
			Key:      model.Key{VIP: netip.AddrFrom4([4]byte{10, 1, i, 1}), Port: 80, Protocol: model.TCP},
			Backends: []model.Backend{{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, i, 1}), 80), Weight: 1}},
		}},
	}
}
