package session

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// service is a prefix that is advertised.
var service = netip.MustParsePrefix("10.1.1.0/24")

// sessionOn returns a session that does not need an engine, nor a connection if it does
// not use it.
func sessionOn(c *net.TCPConn, o Options) *Session {
	if o.Group == nil {
		o.Group = &Group{Hold: time.Minute, Prefixes: []netip.Prefix{service}}
	}
	o.Peer, o.Changed, o.Counters, o.Total = netip.MustParseAddr("127.21.0.2"), func(*Session) {}, &Counters{}, &Total{}
	if c == nil {
		return unconnected(o)
	}
	return New(c, o)
}

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
			s := &sessionOn(nil, Options{SendOnly: true}).in
			var got []byte
			var err error
			for b := make([]byte, room); err == nil; {
				var n int
				n, err = s.Read(b, size != 7, c.read)
				got = append(got, b[:n]...)
			}
			if !errors.Is(err, io.EOF) || !bytes.Equal(got, want) {
				t.Errorf("pieces of %d into %d: %v, %d bytes, want %d", size, room, err, len(got), len(want))
			}
		}
	}
}

// FuzzSession passes arbitrary bytes to a session, from the peer and from us. It must not
// panic, and no updates of the peer may pass.
func FuzzSession(f *testing.F) {
	open, _ := pkt.NewBGPOpenMessage(65000, 9, netip.MustParseAddr("10.0.0.1"), []pkt.OptionParameterInterface{
		pkt.NewOptionParameterCapability([]pkt.ParameterCapabilityInterface{pkt.NewCapFourOctetASNumber(65000),
			pkt.NewCapAddPath([]*pkt.CapAddPathTuple{pkt.NewCapAddPathTuple(pkt.RF_IPv4_UC, pkt.BGP_ADD_PATH_BOTH)})})})
	hello, err := open.Serialize()
	if err != nil {
		f.Fatal(err)
	}
	ours := paths.Local(route.Route{Prefix: service, NextHop: netip.MustParseAddr("10.0.0.1"),
		Attributes: route.Attributes{Communities: "65000:1 1:2:3", MED: 1, LocalPreference: 2, Weight: 3}}, 65021, []*pkt.LargeCommunity{paths.Mark(1, 0)})
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
		session := sessionOn(nil, Options{SendOnly: true})
		session.in.Message = func(typ uint8, body []byte) {
			if typ == pkt.BGP_MSG_OPEN { // a second one closes the connection, which does not exist here
				session.status.State = OpenSent
			}
			session.filter(typ, body)
		}
		session.out.Message, session.out.Updates = func(typ uint8, body []byte) {
			if typ != pkt.BGP_MSG_OPEN { // only one per session
				session.wrote(typ, body)
			}
		}, true
		session.out.Feed(text)
		s, c := &session.in, &chopped{text, 1 + len(text)/3}
		var passed []byte
		b := make([]byte, 64)
		for n, err := s.Read(b, true, c.read); err == nil; n, err = s.Read(b, true, c.read) {
			passed = append(passed, b[:n]...)
		}
		if len(passed) > len(text) {
			t.Errorf("%d bytes became %d", len(text), len(passed))
		}
		check := wire.Scanner{Message: func(typ uint8, _ []byte) {
			if typ == pkt.BGP_MSG_UPDATE {
				t.Error("an update passed")
			}
		}}
		check.Feed(passed)
	})
}
