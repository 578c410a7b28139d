package bgp

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

func message(typ uint8, body []byte) []byte { return rawbgp.Message(typ, body) }

// chopped reads a text in pieces of a given length.
type chopped struct {
	text []byte
	size int
}

func (c *chopped) read(b []byte) (int, error) {
	n := min(len(b), len(c.text), c.size)
	if n == 0 {
		return 0, io.EOF
	}
	copy(b, c.text[:n])
	c.text = c.text[n:]
	return n, nil
}

// Updates become keepalives, however the stream is fragmented and read.
func TestSieve(t *testing.T) {
	open, dead := message(pkt.BGP_MSG_OPEN, bytes.Repeat([]byte{1}, 300)), message(pkt.BGP_MSG_NOTIFICATION, []byte{6, 2})
	alive := message(pkt.BGP_MSG_KEEPALIVE, nil)
	update := message(pkt.BGP_MSG_UPDATE, bytes.Repeat([]byte{2}, 4000))
	in := slices.Concat(open, alive, update, update, message(pkt.BGP_MSG_UPDATE, nil), dead)
	want := slices.Concat(open, alive, alive, alive, alive, dead)
	for _, size := range []int{1, 7, 18, 19, 20, 100, 4096, 9999} {
		for _, room := range []int{1, 19, 5000} {
			c := &chopped{slices.Clone(in), size}
			session := &tap{sendOnly: true, group: &group{}, change: func(*tap) {}, count: &count{}, state: stateOpenSent}
			session.in.message = session.filter
			s := &session.in
			var got []byte
			var err error
			for b := make([]byte, room); err == nil; {
				var n int
				n, err = s.read(b, size != 7, c.read)
				got = append(got, b[:n]...)
			}
			if !errors.Is(err, io.EOF) || !bytes.Equal(got, want) {
				t.Errorf("pieces of %d into %d: %v, %d bytes, want %d", size, room, err, len(got), len(want))
			}
		}
	}
}

// FuzzTap passes arbitrary bytes to a session, from the peer and from us. It must not
// panic, and no updates of the peer may pass.
func FuzzTap(f *testing.F) {
	open, _ := pkt.NewBGPOpenMessage(65000, 9, netip.MustParseAddr("10.0.0.1"), []pkt.OptionParameterInterface{
		pkt.NewOptionParameterCapability([]pkt.ParameterCapabilityInterface{pkt.NewCapFourOctetASNumber(65000),
			pkt.NewCapAddPath([]*pkt.CapAddPathTuple{pkt.NewCapAddPathTuple(pkt.RF_IPv4_UC, pkt.BGP_ADD_PATH_BOTH)})})})
	hello, err := open.Serialize()
	if err != nil {
		f.Fatal(err)
	}
	ours := localPath(route.Route{Prefix: service, NextHop: netip.MustParseAddr("10.0.0.1"),
		Attributes: route.Attributes{Communities: "65000:1 1:2:3", MED: 1, LocalPreference: 2, Weight: 3}}, testAS, []*pkt.LargeCommunity{mark(markPeer, 0)})
	update, err := pkt.NewBGPUpdateMessage(nil, ours.Attrs, []pkt.PathNLRI{{NLRI: ours.Nlri}}).Serialize()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(slices.Concat(hello, message(pkt.BGP_MSG_KEEPALIVE, nil), update))
	f.Add(slices.Concat(update, update, message(pkt.BGP_MSG_NOTIFICATION, []byte{6})))
	f.Add(message(pkt.BGP_MSG_UPDATE, bytes.Repeat([]byte{0xff}, 60)))
	f.Add(message(9, []byte("x")))
	f.Add(bytes.Repeat([]byte{0}, 100))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		session := &tap{sendOnly: true, group: &group{prefixes: []netip.Prefix{service}}, change: func(*tap) {}, sent: map[path]sentRoute{}, count: &count{}}
		session.in.message = func(typ uint8, body []byte) {
			if typ == pkt.BGP_MSG_OPEN { // a second one closes the connection, which does not exist here
				session.state = stateOpenSent
			}
			session.filter(typ, body)
		}
		session.out.message, session.out.updates = func(typ uint8, body []byte) {
			if typ != pkt.BGP_MSG_OPEN { // only one per session
				session.wrote(typ, body)
			}
		}, true
		session.out.feed(text)
		s, c := &session.in, &chopped{text, 1 + len(text)/3}
		var passed []byte
		b := make([]byte, 64)
		for n, err := s.read(b, true, c.read); err == nil; n, err = s.read(b, true, c.read) {
			passed = append(passed, b[:n]...)
		}
		if len(passed) > len(text) {
			t.Errorf("%d bytes became %d", len(text), len(passed))
		}
		check := scanner{message: func(typ uint8, _ []byte) {
			if typ == pkt.BGP_MSG_UPDATE {
				t.Error("an update passed")
			}
		}}
		check.feed(passed)
	})
}

// A peer that floods a speaker with routes, or sends it garbage, costs neither memory nor
// the session.
func TestFlood(t *testing.T) {
	const port = 20193
	local, far := netip.MustParseAddr("127.21.4.1"), netip.MustParseAddr("127.21.4.2")
	// The flooding side is also a speaker, whose peer is under test.
	listener := listenOnce(t, netip.AddrPortFrom(far, port))
	var mu sync.Mutex
	var log strings.Builder
	s := startSpeaker(t, local.String(), port, func(c *SpeakerConfig) {
		c.Peers = []PeerConfig{{Address: far, Port: port, AS: 65110}}
		c.Log = slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(b)
		}), nil))
	})
	ended := func(how string) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(log.String(), "BGP session ended") && strings.Contains(log.String(), how)
	}
	c := <-listener
	defer c.Close()
	open, _ := pkt.NewBGPOpenMessage(65110, 90, far, []pkt.OptionParameterInterface{
		pkt.NewOptionParameterCapability([]pkt.ParameterCapabilityInterface{pkt.NewCapFourOctetASNumber(65110), pkt.NewCapMultiProtocol(pkt.RF_IPv4_UC)})})
	hello, _ := open.Serialize()
	send := func(b []byte) {
		t.Helper()
		if err := c.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	send(slices.Concat(hello, message(pkt.BGP_MSG_KEEPALIVE, nil)))
	go func() { _, _ = io.Copy(io.Discard, c) }()
	eventually(t, "session", func() bool { return s.Peers()[0].State == stateEstablished })
	before := heap()
	var batch []byte
	for i := range 200_000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		path := localPath(route.Route{Prefix: p, NextHop: far}, 65110, nil)
		b, err := pkt.NewBGPUpdateMessage(nil, path.Attrs, []pkt.PathNLRI{{NLRI: path.Nlri}}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		if batch = append(batch, b...); len(batch) > 1<<16 {
			send(batch)
			batch = batch[:0]
		}
	}
	send(batch)
	send(message(pkt.BGP_MSG_UPDATE, bytes.Repeat([]byte{0xff}, 500)))
	if err := s.Set([]route.Route{routeVia(service, "10.0.0.105")}); err != nil {
		t.Fatal(err)
	}
	// After all that, the session ends only when the peer requests it.
	send(message(pkt.BGP_MSG_NOTIFICATION, []byte{pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN}))
	eventually(t, "the session ends", func() bool { return ended("") })
	if !ended("peer 127.21.4.2 closed the session: administrative shutdown") {
		t.Errorf("the session ended otherwise: %s", log.String())
	}
	eventually(t, "200,000 routes cost less than 4 MiB", func() bool { return int64(heap())-int64(before) <= 4<<20 })
	if rs, err := s.e.routes(); err != nil || len(rs) != 1 {
		t.Errorf("the table has %d routes, %v; want ours", len(rs), err)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// listenOnce returns the first connection.
func listenOnce(t *testing.T, at netip.AddrPort) chan net.Conn {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan net.Conn, 1)
	go func() {
		defer l.Close()
		if c, err := l.Accept(); err == nil {
			came <- c
		}
	}()
	t.Cleanup(func() { l.Close() })
	return came
}
