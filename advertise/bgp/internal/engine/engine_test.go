package engine

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

const (
	testAS   = 65021
	testHold = 9 * time.Second
)

func start(t *testing.T, s Setup) *Engine {
	t.Helper()
	s.ClusterID = s.RouterID
	e, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// listening is the setup of an engine to which neighbors in a prefix connect.
func listening(at netip.AddrPort, from string, as uint32) Setup {
	return Setup{AS: as, RouterID: at.Addr(), Listen: []netip.AddrPort{at}, Groups: []*session.Group{
		{Name: "balancers", Prefixes: []netip.Prefix{netip.MustParsePrefix(from)}, AS: testAS, Hold: testHold, Client: as == testAS, Silent: true}}}
}

// dialing is the setup of an engine that connects to one peer.
func dialing(from netip.Addr, to netip.AddrPort, as uint32) Setup {
	g := &session.Group{Name: "peer " + to.Addr().String(), Peer: "far", AS: as, Hold: testHold, Dialed: true,
		Prefixes: []netip.Prefix{netip.PrefixFrom(to.Addr(), to.Addr().BitLen())}}
	return Setup{AS: testAS, RouterID: from, SendOnly: true, Dials: []Dial{{To: to, From: from, Retry: time.Second, Group: g}}}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestGate(t *testing.T) {
	if _, err := openGate(server.NewBgpServer()); err != nil {
		t.Fatal(err)
	}
}

func TestListedStaysBounded(t *testing.T) {
	e := &Engine{peers: map[netip.Addr]*peerState{}, changed: make(chan struct{}), Setup: Setup{Log: slog.New(slog.DiscardHandler)}}
	for i := range 3 * maxListed {
		e.refuse(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), "refused")
	}
	if len(e.peers) > maxListed {
		t.Errorf("%d refused neighbors are listed, want %d at most", len(e.peers), maxListed)
	}
}

// A session that comes up at the moment in which its speaker is closed must not keep the
// BFD ports, because the next speaker in this process needs them.
func TestCloseBeforeBFD(t *testing.T) {
	local, peer := netip.MustParseAddr("127.23.1.9"), netip.MustParseAddrPort("127.23.0.109:20191")
	e := start(t, dialing(local, peer, testAS))
	e.Close()
	late := &session.Session{Options: session.Options{Peer: peer.Addr(), Group: &session.Group{BFD: true}}, Local: local}
	e.watch(late)
	free, err := bfd.Listen(local)
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
}

// A neighbor cannot exceed its limit by much before it is disconnected, however fast it
// sends and however long counting takes: it is not read meanwhile.
func TestLimitIsHardlyExceeded(t *testing.T) {
	const limit = 2000
	at, from := netip.MustParseAddrPort("127.23.0.109:20234"), netip.MustParseAddr("127.23.1.1")
	setup := listening(at, "127.23.1.0/24", testAS)
	setup.Groups[0].MaxPaths = limit
	e := start(t, setup)
	count, release := e.total.Count, make(chan struct{})
	e.total.Count = func(a netip.Addr) (most, all int) { // takes long
		<-release
		return count(a)
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	c, err := d.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write(slices.Concat(rawbgp.Open(testAS, 90, from), rawbgp.Keepalive()))
	eventually(t, "session", func() bool { return e.Up(from) })
	_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = c.Write(rawbgp.Announce(netip.MustParseAddr("40.0.0.0"), from, 200_000))
	}()
	most, same := 0, 0
	eventually(t, "it is not read any more", func() bool {
		now, _ := count(from)
		if same++; now != most || now <= limit {
			most, same = now, 0
		}
		return same > 50
	})
	close(release)
	eventually(t, "it is disconnected", func() bool {
		return strings.Contains(e.Peers()[0].LastError, "a neighbor of balancers may send 2000: disconnected for")
	})
	<-sent
	if most > limit+1000 {
		t.Errorf("it had %d paths, want %d and what 4,096 bytes hold at most", most, limit)
	}
}

// What a session was sent must equal what is due, attribute by attribute: otherwise each
// audit would send everything again.
func TestDueIsWhatIsSent(t *testing.T) {
	for i, as := range []uint32{testAS, 65110} {
		t.Run(fmt.Sprint(as), func(t *testing.T) {
			local, far := netip.AddrFrom4([4]byte{127, 23, 2, byte(i + 1)}), netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 23, 3, byte(i + 1)}), 20192)
			start(t, listening(far, local.String()+"/32", as))
			e := start(t, dialing(local, far, as))
			eventually(t, "session", func() bool { return e.Up(far.Addr()) })
			for _, a := range []route.Attributes{
				{}, {MED: 7}, {LocalPreference: 7}, {ASPathPrepend: 1}, {ASPathPrepend: route.MaxASPathPrepend}, {Weight: 1}, {Weight: 1 << 20},
				{Communities: "65000:1 no-export"}, {Communities: "1:2:3"}, {Communities: "65000:1 1:2:3"}, {Peers: "far near"}, {Peers: "near"},
				{Communities: "65000:1 blackhole 4200000000:1:1", LocalPreference: 9, MED: 8, ASPathPrepend: 3, Weight: 5, Peers: "far"},
			} {
				dueIsSent(t, e, a)
			}
		})
	}
}

func dueIsSent(t *testing.T, e *Engine, a route.Attributes) {
	t.Helper()
	all := e.sessions()
	if len(all) != 1 {
		t.Fatalf("%d sessions", len(all))
	}
	on := all[0]
	due := map[paths.Key]paths.Sent{}
	for prefix, nextHop := range map[string]string{"10.1.1.0/24": "10.0.0.105", "fd00:1:1::/64": "fd00::105"} {
		r := route.Route{Prefix: netip.MustParsePrefix(prefix), NextHop: netip.MustParseAddr(nextHop), Attributes: a}
		if err := e.Announce(r); err != nil {
			t.Fatal(err)
		}
		if attrs, is := e.exported(on.Group, e.path(r).Attrs); is {
			due[paths.Key{Prefix: r.Prefix}] = paths.Sent{NextHop: on.NextHop(r.NextHop), Attributes: paths.Words(attrs)}
		}
	}
	if want := 2; len(due) != want && a.Peers != "near" || a.Peers == "near" && len(due) != 0 {
		t.Errorf("%s: %d prefixes are due", a, len(due))
	}
	eventually(t, "what is due is sent", func() bool { sent, _ := on.Sent(); return maps.Equal(sent, due) })
	if d, err := e.compare(on); err != nil || d.missing != 0 || len(d.stale) != 0 {
		sent, _ := on.Sent()
		t.Errorf("%s: %d missing, stale %v, %v; sent %v, due %v", a, d.missing, d.stale, err, sent, due)
	}
}
