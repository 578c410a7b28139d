package bgp

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// Contents of the UPDATEs that strays send.
var (
	origin, noPath, preferred = rawbgp.Origin, rawbgp.NoPath, rawbgp.Preferred
	viaStray                  = rawbgp.NextHop(netip.MustParseAddr("10.0.0.166"))
	usual                     = rawbgp.Good(netip.MustParseAddr("10.0.0.166"))
	prefix24                  = []byte{24, 10, 3, 0}
	updateOf                  = rawbgp.Update
)

// malformed contains UPDATEs with one error each.
var malformed = rawbgp.Malformed(netip.MustParseAddr("10.0.0.166"))

// stray is a neighbor of the reflector that is controlled by a test.
type stray struct {
	t    *testing.T
	addr netip.Addr
	c    net.Conn
}

func startStray(t *testing.T, addr netip.Addr, port uint16) *stray {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)), Timeout: 20 * time.Second}
	c, err := d.Dial("tcp", netip.AddrPortFrom(reflectorAddr, port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	open, _ := pkt.NewBGPOpenMessage(testAS, 90, addr, []pkt.OptionParameterInterface{pkt.NewOptionParameterCapability([]pkt.ParameterCapabilityInterface{
		pkt.NewCapFourOctetASNumber(testAS), pkt.NewCapMultiProtocol(pkt.RF_IPv4_UC), pkt.NewCapMultiProtocol(pkt.RF_IPv6_UC)})})
	hello, err := open.Serialize()
	if err != nil {
		t.Fatal(err)
	}
	s := &stray{t, addr, c}
	s.say(hello, rawbgp.Message(pkt.BGP_MSG_KEEPALIVE, nil))
	go func() { _, _ = io.Copy(io.Discard, c) }()
	return s
}

// say ignores whether the other end has closed the connection.
func (s *stray) say(messages ...[]byte) {
	s.t.Helper()
	_ = s.c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	_, _ = s.c.Write(slices.Concat(messages...))
}

// row is what the reflector reports about it.
func (s *stray) row(r *Reflector) (row advertise.Peer) {
	for _, p := range r.Peers() {
		if p.Address == s.addr.String() {
			row = p
		}
	}
	return row
}

// TestMalformedUpdates has neighbors of a reflector send invalid UPDATEs. Whatever
// happens to their own sessions and routes, those of others stay, and the router receives
// nothing malformed.
func TestMalformedUpdates(t *testing.T) {
	const port = 20200
	r := startReflector(t, port)
	router, _ := startRouter(t, port)
	good := startSpeaker(t, "127.21.1.1", port)
	if err := good.Set([]route.Route{routeVia(service, "10.0.0.105")}); err != nil {
		t.Fatal(err)
	}
	table := func() string { rs, _ := router.Routes(); return show(rs) }
	const goodAlone = "10.1.1.0/24 10.0.0.105"
	eventually(t, "the good route", func() bool { return table() == goodAlone })
	sessions := func() string {
		return fmt.Sprint(good.Peers()[0].State, good.Peers()[0].Since, router.Peers()[0].State, router.Peers()[0].Since)
	}
	before := sessions()
	from := netip.MustParseAddr("127.21.1.10")
	for name, bad := range malformed {
		from = from.Next()
		s := startStray(t, from, port)
		s.say(updateOf(usual, prefix24))
		eventually(t, name+": its good route", func() bool { return table() == goodAlone+"; 10.3.0.0/24 10.0.0.166" })
		s.say(bad, updateOf(usual, []byte{24, 10, 3, 1}))
		fate := ""
		eventually(t, name+": its end, or its next route", func() bool {
			switch now := table(); {
			case strings.Contains(now, "10.3.1.0/24 10.0.0.166"):
				fate = "the session continues: " + now
			case s.row(r).State == session.Idle && now == goodAlone:
				fate = s.row(r).LastError
			}
			return fate != ""
		})
		t.Logf("%s: %s", name, fate)
		if strings.Contains(fate, " 0.0.0.0") || strings.Contains(fate, " 224.") || strings.Contains(fate, "/33") || strings.Contains(fate, "*") {
			t.Errorf("%s: the router has %s", name, table())
		}
		s.c.Close()
		eventually(t, name+": its routes go with it", func() bool { return table() == goodAlone })
	}
	flood(t, port, from)
	eventually(t, "all of them are gone", func() bool { return table() == goodAlone })
	if after := sessions(); after != before {
		t.Errorf("good sessions are %s, were %s", after, before)
	}
}

// flood sends UPDATEs with random, but reproducible, changes of some bytes.
func flood(t *testing.T, port uint16, from netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	random := rand.New(rand.NewPCG(1, 2))
	for ctx.Err() == nil {
		if from = from.Next(); from == netip.MustParseAddr("127.21.1.250") {
			return
		}
		s := startStray(t, from, port)
		for range 20 {
			m := updateOf(slices.Concat(usual, []byte{0xc0, 8, 4, 1, 2, 3, 4}, []byte{0xc0, 16, 8, 0x40, 4, 0, 1, 0x40, 0, 0, 0}), prefix24)
			for range 1 + random.IntN(4) {
				m[19+random.IntN(len(m)-19)] = byte(random.Uint32())
			}
			s.say(m)
		}
		sleep.About(ctx, 10*time.Millisecond)
		s.c.Close()
	}
}
