package engine

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/advertise/bgp/internal/rib"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
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

// A neighbor is disconnected at the first path too many, however fast it sends.
func TestLimitIsHardlyExceeded(t *testing.T) {
	const limit = 2000
	at, from := netip.MustParseAddrPort("127.23.0.109:20234"), netip.MustParseAddr("127.23.1.1")
	setup := listening(at, "127.23.1.0/24", testAS)
	setup.Groups[0].MaxPaths = limit
	e := start(t, setup)
	c := connect(t, from, at)
	_, _ = c.Write(slices.Concat(rawbgp.Open(testAS, 90, from), rawbgp.Keepalive()))
	eventually(t, "session", func() bool { return e.Up(from) })
	most := &counter{}
	e.table.Subscribe(most)
	_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
	_, _ = c.Write(rawbgp.Announce(netip.MustParseAddr("40.0.0.0"), from, 200_000))
	eventually(t, "it is disconnected", func() bool {
		return strings.Contains(e.Peers()[0].LastError, "a neighbor of balancers may send 2000: disconnected for")
	})
	if n := len(e.Routes()); n != 0 {
		t.Errorf("%d of its routes are left", n)
	}
	most.mu.Lock()
	defer most.mu.Unlock()
	if n := len(most.seen); n != limit+1 {
		t.Errorf("it had %d paths, want %d and one more", n, limit)
	}
}

func connect(t *testing.T, from netip.Addr, to netip.AddrPort) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	c, err := d.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// counter records which prefixes there were.
type counter struct {
	mu   sync.Mutex
	seen map[netip.Prefix]bool
}

func (c *counter) Mark(prefixes []netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range prefixes {
		if c.seen == nil {
			c.seen = map[netip.Prefix]bool{}
		}
		c.seen[p] = true
	}
}

// What a neighbor within the AS, or in another one, receives for each attribute of a route.
func TestAttributesThatAreSent(t *testing.T) {
	for i, as := range []uint32{testAS, 65110} {
		t.Run(fmt.Sprint(as), func(t *testing.T) {
			local, far := netip.AddrFrom4([4]byte{127, 23, 2, byte(i + 1)}), netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 23, 3, byte(i + 1)}), 20192)
			receiver := start(t, listening(far, local.String()+"/32", as))
			e := start(t, dialing(local, far, as))
			eventually(t, "session", func() bool { return e.Up(far.Addr()) })
			for _, a := range []route.Attributes{
				{}, {MED: 7}, {LocalPreference: 7}, {ASPathPrepend: 1}, {ASPathPrepend: route.MaxASPathPrepend}, {Weight: 1}, {Weight: 1 << 20},
				{Communities: "65000:1 no-export"}, {Communities: "1:2:3"}, {Communities: "65000:1 1:2:3"}, {Peers: "far near"}, {Peers: "near"},
				{Communities: "65000:1 blackhole 4200000000:1:1", LocalPreference: 9, MED: 8, ASPathPrepend: 3, Weight: 5, Peers: "far"},
			} {
				sentIsReceived(t, e, receiver, a, as != testAS)
			}
		})
	}
}

func sentIsReceived(t *testing.T, e, receiver *Engine, a route.Attributes, external bool) {
	t.Helper()
	want := map[netip.Prefix]wire.Attributes{}
	for prefix, nextHop := range map[string]string{"10.1.1.0/24": "10.0.0.105", "fd00:1:1::/64": "fd00::105"} {
		r := route.Route{Prefix: netip.MustParsePrefix(prefix), NextHop: netip.MustParseAddr(nextHop), Attributes: a}
		e.Announce(r)
		if attrs, is := paths.Local(r, "far", testAS, external, r.NextHop); is {
			want[r.Prefix] = attrs
		}
	}
	if (len(want) == 0) != (a.Peers == "near") {
		t.Errorf("%s: %d prefixes are due", a, len(want))
	}
	eventually(t, "what is due is received", func() bool {
		got := map[netip.Prefix]wire.Attributes{}
		receiver.table.Each(func(p netip.Prefix, list []rib.Path) { got[p] = list[0].Attributes.Value() })
		return maps.Equal(got, want)
	})
}

// A reflector passes on the paths of load balancers, at most as many as configured, with
// the attributes of RFC 4456, and not what has passed through it before.
func TestReflection(t *testing.T) {
	at, router := netip.MustParseAddrPort("127.23.0.110:20235"), netip.MustParseAddr("127.23.5.1")
	setup := listening(at, "127.23.4.0/24", testAS)
	setup.Groups = append(setup.Groups, &session.Group{Name: "router", AS: testAS, Hold: testHold, Client: true, SendMax: 2, Prefixes: []netip.Prefix{netip.PrefixFrom(router, 32)}})
	e := start(t, setup)
	receiving := dialing(router, at, testAS)
	receiving.SendOnly, receiving.Dials[0].Group.Receive, receiving.Dials[0].Group.Silent = false, true, true
	r := start(t, receiving)
	eventually(t, "the router's session", func() bool { return e.Up(router) && r.Up(at.Addr()) })
	for i, more := range [][]byte{
		nil, nil, nil,
		{0x80, 9, 4, 127, 23, 0, 110},  // ORIGINATOR_ID: the reflector
		{0x80, 10, 4, 127, 23, 0, 110}, // CLUSTER_LIST: it, too
	} {
		from := netip.AddrFrom4([4]byte{127, 23, 4, byte(1 + i)})
		c := connect(t, from, at)
		_, _ = c.Write(slices.Concat(rawbgp.Open(testAS, 90, from), rawbgp.Keepalive(), rawbgp.Announce(netip.MustParseAddr("40.0.0.1"), from, 1, more...)))
		eventually(t, "its session", func() bool { return e.Up(from) })
	}
	show := func() (all []string) {
		r.table.Each(func(_ netip.Prefix, list []rib.Path) {
			for _, p := range list {
				a := p.Attributes.Value()
				all = append(all, fmt.Sprintf("via %s from %v cluster %v", a.NextHop, []byte(a.Originator), []byte(a.Clusters)))
			}
		})
		slices.Sort(all)
		return all
	}
	want := []string{"via 127.23.4.1 from [127 23 4 1] cluster [127 23 0 110]", "via 127.23.4.2 from [127 23 4 2] cluster [127 23 0 110]"}
	eventually(t, "two paths", func() bool { return slices.Equal(show(), want) })
	if n := e.table.Paths(); n != 4 { // all but the one that it originated itself
		t.Errorf("the reflector has %d paths", n)
	}
}
