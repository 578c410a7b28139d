package bgp

import (
	"context"
	"encoding/binary"
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

	"github.com/fairlead/fairlead/announce"
)

// Attributes of an UPDATE within an AS (RFC 4271, section 4.3).
var (
	origin    = []byte{0x40, 1, 1, 0}
	noPath    = []byte{0x40, 2, 0}
	viaStray  = []byte{0x40, 3, 4, 10, 0, 0, 166}
	preferred = []byte{0x40, 5, 4, 0, 0, 0, 100}
	usual     = slices.Concat(origin, noPath, viaStray, preferred)
	prefix24  = []byte{24, 10, 3, 0}
)

func updateOf(attrs, nlri []byte) []byte {
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attrs)))
	return message(pkt.BGP_MSG_UPDATE, slices.Concat(body, attrs, nlri))
}

func withHeader(at int, value byte) []byte {
	m := updateOf(usual, prefix24)
	m[at] = value
	return m
}

// malformed are UPDATEs that are wrong in one way each.
var malformed = map[string][]byte{
	"nothing in it but its type":              message(pkt.BGP_MSG_UPDATE, nil),
	"withdrawn routes beyond the end":         message(pkt.BGP_MSG_UPDATE, []byte{0xff, 0xff, 0, 0}),
	"attributes beyond the end":               message(pkt.BGP_MSG_UPDATE, []byte{0, 0, 0xff, 0xff}),
	"an attribute beyond the attributes":      updateOf(slices.Concat(noPath, viaStray, []byte{0x40, 1, 200, 0}), prefix24),
	"an ORIGIN that is optional":              updateOf(slices.Concat([]byte{0x80, 1, 1, 0}, noPath, viaStray, preferred), prefix24),
	"an ORIGIN of 9":                          updateOf(slices.Concat([]byte{0x40, 1, 1, 9}, noPath, viaStray, preferred), prefix24),
	"ORIGIN twice":                            updateOf(slices.Concat(origin, usual), prefix24),
	"no ORIGIN":                               updateOf(slices.Concat(noPath, viaStray, preferred), prefix24),
	"an AS_PATH segment of type 9":            updateOf(slices.Concat(origin, []byte{0x40, 2, 6, 9, 1, 0, 0, 0, 1}, viaStray, preferred), prefix24),
	"an AS_PATH segment cut short":            updateOf(slices.Concat(origin, []byte{0x40, 2, 4, 2, 9, 0, 1}, viaStray, preferred), prefix24),
	"no NEXT_HOP":                             updateOf(slices.Concat(origin, noPath, preferred), prefix24),
	"a NEXT_HOP of 3 bytes":                   updateOf(slices.Concat(origin, noPath, []byte{0x40, 3, 3, 10, 0, 0}, preferred), prefix24),
	"the NEXT_HOP 0.0.0.0":                    updateOf(slices.Concat(origin, noPath, []byte{0x40, 3, 4, 0, 0, 0, 0}, preferred), prefix24),
	"the NEXT_HOP 224.0.0.1":                  updateOf(slices.Concat(origin, noPath, []byte{0x40, 3, 4, 224, 0, 0, 1}, preferred), prefix24),
	"an unknown attribute that must be known": updateOf(slices.Concat(usual, []byte{0x40, 99, 1, 0}), prefix24),
	"COMMUNITIES of 5 bytes":                  updateOf(slices.Concat(usual, []byte{0xc0, 8, 5, 1, 2, 3, 4, 5}), prefix24),
	"LARGE_COMMUNITY of 7 bytes":              updateOf(slices.Concat(usual, []byte{0xc0, 32, 7, 1, 2, 3, 4, 5, 6, 7}), prefix24),
	"EXTENDED_COMMUNITIES of 7 bytes":         updateOf(slices.Concat(usual, []byte{0xc0, 16, 7, 0x40, 4, 0, 1, 0, 0, 0}), prefix24),
	"a link bandwidth that is no number":      updateOf(slices.Concat(usual, []byte{0xc0, 16, 8, 0x40, 4, 0, 1, 0x7f, 0xc0, 0, 0}), prefix24),
	"a link bandwidth without end":            updateOf(slices.Concat(usual, []byte{0xc0, 16, 8, 0x40, 4, 0, 1, 0x7f, 0x80, 0, 0}), prefix24),
	"a link bandwidth below 0":                updateOf(slices.Concat(usual, []byte{0xc0, 16, 8, 0x40, 4, 0, 1, 0xc8, 0, 0, 0}), prefix24),
	"an MP_REACH_NLRI of a byte":              updateOf(slices.Concat(usual, []byte{0x80, 14, 1, 0}), prefix24),
	"an IPv6 next hop of 3 bytes":             updateOf(slices.Concat(usual, []byte{0x80, 14, 8, 0, 2, 1, 3, 1, 2, 3, 0}), prefix24),
	"an IPv6 prefix of 129 bits":              updateOf(slices.Concat(usual, []byte{0x80, 14, 22, 0, 2, 1, 16, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 129}), prefix24),
	"a prefix of 33 bits":                     updateOf(usual, []byte{33, 10, 3, 0, 0, 0}),
	"a prefix cut short":                      updateOf(usual, []byte{24, 10}),
	"a length below a header's":               withHeader(17, 10),
	"a length of 65,535":                      slices.Concat(message(pkt.BGP_MSG_KEEPALIVE, nil)[:16], []byte{0xff, 0xff, 2}),
	"a marker with a hole":                    withHeader(3, 0),
	"an unknown type":                         withHeader(18, 9),
}

// stray is a neighbour of the reflector that does what a test says.
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
	s.say(hello, message(pkt.BGP_MSG_KEEPALIVE, nil))
	go func() { _, _ = io.Copy(io.Discard, c) }()
	return s
}

// say does not mind that the other end has gone.
func (s *stray) say(messages ...[]byte) {
	s.t.Helper()
	_ = s.c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	_, _ = s.c.Write(slices.Concat(messages...))
}

// row is what the reflector says of it.
func (s *stray) row(r *Reflector) (row announce.Peer) {
	for _, p := range r.Peers() {
		if p.Address == s.addr.String() {
			row = p
		}
	}
	return row
}

// TestMalformedUpdates has neighbours of a reflector send what is no UPDATE, or no
// good one. Whatever becomes of their own sessions and routes, others' stay, and
// the router is told no nonsense.
func TestMalformedUpdates(t *testing.T) {
	const port = 20200
	r := startReflector(t, port)
	router, _ := startRouter(t, port)
	good := startSpeaker(t, "127.21.1.1", port)
	if err := good.Set([]announce.Route{route(service, "10.0.0.105")}); err != nil {
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
				fate = "the session goes on: " + now
			case s.row(r).State == stateIdle && now == goodAlone:
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

// flood sends UPDATEs with some bytes changed at random, always the same ones.
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
		sleep(ctx, 10*time.Millisecond)
		s.c.Close()
	}
}
