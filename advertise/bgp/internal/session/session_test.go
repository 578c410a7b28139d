package session

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
	"unique"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/rib"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

const ourAS, testHold = 65021, 3 * time.Second

var (
	ourID  = netip.MustParseAddr("10.0.0.9")
	peerID = netip.MustParseAddr("10.0.0.1")
	// service is a prefix that is advertised.
	service = netip.MustParsePrefix("10.1.1.0/24")
)

// sessionOn returns a session that does not need an engine.
func sessionOn(c *net.TCPConn, o Options) *Session {
	if o.Group == nil {
		o.Group = &Group{AS: ourAS, Hold: testHold, Prefixes: []netip.Prefix{service}}
	}
	if o.Table == nil {
		o.Table = rib.New()
	}
	if o.Changed == nil {
		o.Changed = func(*Session) {}
	}
	o.Peer, o.AS, o.RouterID, o.Counters, o.Total = netip.MustParseAddr("127.21.0.2"), ourAS, ourID, &Counters{}, &Total{}
	o.All = func() []*Session { return nil }
	o.Accept = func(a wire.Shared) (wire.Shared, bool) { return a, true }
	o.Export = func(_ *Session, p rib.Path) (wire.Shared, bool) { return p.Attributes, true }
	return New(c, o)
}

func message(typ uint8, body []byte) []byte { return rawbgp.Message(typ, body) }

// greet is what a peer sends at the start.
func greet() []byte { return slices.Concat(rawbgp.Open(ourAS, 90, peerID), rawbgp.Keepalive()) }

// far is the peer's side of a session: it records what it is sent.
type far struct {
	t    *testing.T
	c    *net.TCPConn
	mu   sync.Mutex
	said []uint8         // types
	has  map[string]bool // prefixes
	seen int             // announced routes
}

func farSide(t *testing.T, c *net.TCPConn) *far {
	f := &far{t: t, c: c, has: map[string]bool{}}
	decoder := wire.Decoder{Families: map[pkt.Family]pkt.BGPAddPathMode{pkt.RF_IPv4_UC: 0, pkt.RF_IPv6_UC: 0}}
	go func() {
		for r := wire.NewReader(c); ; {
			typ, body, err := r.Next()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.said = append(f.said, typ)
			if typ == pkt.BGP_MSG_UPDATE {
				u, err := decoder.Update(body)
				if err != nil {
					t.Error(err)
				}
				for _, k := range u.Withdrawn {
					delete(f.has, k.Prefix.String())
				}
				for _, a := range u.Announced {
					f.seen += len(a.Keys)
					for _, k := range a.Keys {
						f.has[k.Prefix.String()] = true
					}
				}
			}
			f.mu.Unlock()
		}
	}()
	return f
}

func (f *far) say(b ...[]byte) {
	f.t.Helper()
	if _, err := f.c.Write(slices.Concat(b...)); err != nil {
		f.t.Fatal(err)
	}
}

// until waits for a condition of what was received.
func (f *far) until(what string, ok func(f *far) bool) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		f.mu.Lock()
		done := ok(f)
		f.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("not within 20 s: %s; received %v, has %v", what, f.said, f.has)
		}
	}
}

func add(table *rib.Table, p string) {
	r := route.Route{Prefix: netip.MustParsePrefix(p), NextHop: peerID}
	if r.Prefix.Addr().Is6() {
		r.NextHop = netip.MustParseAddr("fd00::1")
	}
	table.Announce(r, unique.Make(wire.Attributes{NextHop: r.NextHop}))
}

// A peer is sent the table, then each change, and all of it again on request, but not more
// often than once per second.
func TestPeerFollowsTheTable(t *testing.T) {
	ours, theirs := connected(t)
	table := rib.New()
	add(table, "10.1.1.0/24")
	add(table, "fd00:1:1::/64")
	s, f := sessionOn(ours, Options{Table: table}), farSide(t, theirs)
	go s.Run()
	f.say(greet())
	f.until("the table", func(f *far) bool { return f.has["10.1.1.0/24"] && f.has["fd00:1:1::/64"] })
	add(table, "10.1.2.0/24")
	table.Withdraw(service)
	f.until("the changes", func(f *far) bool { return f.has["10.1.2.0/24"] && !f.has["10.1.1.0/24"] })
	f.mu.Lock()
	before := f.seen
	f.mu.Unlock()
	if n := s.SentRoutes(); n != 2 || s.HasSent(service) || s.Queued() {
		t.Errorf("%d routes count as sent, queued %t", n, s.Queued())
	}
	began := time.Now()
	for range 100 {
		f.say(message(pkt.BGP_MSG_ROUTE_REFRESH, []byte{0, 1, 0, 1}))
	}
	f.until("all of it twice", func(f *far) bool { return f.seen == before+4 })
	if took := time.Since(began); took < refreshEvery {
		t.Errorf("it was sent twice within %s", took)
	}
	s.Close()
}

// A session has keepalives within a third of the hold time, and ends without the peer's.
func TestHoldTimer(t *testing.T) {
	ours, theirs := connected(t)
	s, f := sessionOn(ours, Options{}), farSide(t, theirs)
	began, ended := time.Now(), make(chan bool)
	go func() { s.Run(); close(ended) }()
	f.say(greet())
	<-ended
	if took := time.Since(began); took < testHold || s.Status().Reason != "nothing received from 127.21.0.2 within the hold time" {
		t.Errorf("it ended after %s: %s", took, s.Status().Reason)
	}
	f.until("notification", func(f *far) bool { return f.said[len(f.said)-1] == pkt.BGP_MSG_NOTIFICATION })
	if n := len(f.said); n < 4 || n > 6 { // OPEN, the first KEEPALIVE, one each second, NOTIFICATION
		t.Errorf("received %v", f.said)
	}
}

// A peer that does not complete the start in time is left without a word.
func TestStartTakesTooLong(t *testing.T) {
	ours, theirs := connected(t)
	s, f := sessionOn(ours, Options{}), farSide(t, theirs)
	f.say(rawbgp.Open(ourAS, 90, peerID))
	s.Run()
	if reason := s.Status().Reason; reason[:35] != "no session within the hold time of " {
		t.Errorf("it ended because %s", reason)
	}
}

// FuzzSession passes arbitrary bytes to a session. It must not panic, a speaker accepts no
// routes, and nothing is left of others after the end.
func FuzzSession(f *testing.F) {
	hop := netip.MustParseAddr("10.0.0.1")
	update := rawbgp.Announce(netip.MustParseAddr("40.0.0.0"), hop, 3)
	f.Add(slices.Concat(greet(), update))
	f.Add(slices.Concat(greet(), update, rawbgp.Withdraw(netip.MustParseAddr("40.0.0.0"), 2), message(pkt.BGP_MSG_ROUTE_REFRESH, []byte{0, 1, 0, 1})))
	f.Add(slices.Concat(greet(), greet()))
	f.Add(slices.Concat(greet(), message(pkt.BGP_MSG_NOTIFICATION, []byte{6})))
	f.Add(slices.Concat(greet(), message(pkt.BGP_MSG_UPDATE, bytes.Repeat([]byte{0xff}, 60))))
	f.Add(message(9, []byte("x")))
	f.Add(bytes.Repeat([]byte{0}, 100))
	for _, m := range rawbgp.Malformed(hop) {
		f.Add(slices.Concat(greet(), m, update))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		for _, sendOnly := range []bool{true, false} {
			ours, theirs := connected(t)
			s := sessionOn(ours, Options{SendOnly: sendOnly})
			s.Group.Receive = true
			ended := make(chan bool)
			go func() { s.Run(); close(ended) }()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			_, _ = theirs.Write(text)
			_ = theirs.CloseWrite()
			<-ended
			if _, n := s.Source.Count(); n != 0 || s.Table.Paths() != 0 || s.Status().Reason == "" {
				t.Errorf("%d paths, %d in the table, ended because of %q", n, s.Table.Paths(), s.Status().Reason)
			}
		}
	})
}
