package bgp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// A reflector sends routes to routers, but does not accept routes from them, so that one
// with a full table neither fills memory nor attracts traffic.
func TestRoutesOfRoutersAreNotAccepted(t *testing.T) {
	const port = 20230
	r := startReflector(t, port)
	router := startStray(t, routerAddr, port)
	eventually(t, "session", func() bool { return router.row(r).State == stateEstablished })
	for i := range 100 {
		router.say(rawbgp.Announce(netip.AddrFrom4([4]byte{40, byte(i), 0, 0}), routerAddr, 1000))
	}
	s := startSpeaker(t, "127.21.1.1", port)
	if err := s.Set([]route.Route{routeVia(service, "10.0.0.105")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is read", func() bool { return router.row(r).UpdatesReceived == 500 })
	eventually(t, "the balancer's route alone", func() bool { rs, _ := r.Routes(); return show(rs) == "10.1.1.0/24 10.0.0.105" })
	if row := router.row(r); row.State != stateEstablished || row.Received != 0 {
		t.Errorf("the router's session: %+v", row)
	}
}

// All clients together are limited: the one with the most is disconnected, and the others
// are not affected.
func TestMaxTotal(t *testing.T) {
	const port = 20231
	r := startReflector(t, port, func(c *ReflectorConfig) { c.MaxTotal = 1000 })
	var all []*stray
	for i, n := range []int{300, 500, 150} {
		a := netip.AddrFrom4([4]byte{127, 21, 1, byte(1 + i)})
		s := startStray(t, a, port)
		s.say(rawbgp.Announce(netip.AddrFrom4([4]byte{40, byte(i), 0, 0}), a, n))
		all = append(all, s)
		eventually(t, "its routes", func() bool { return s.row(r).Received == uint32(n) })
	}
	all[0].say(rawbgp.Announce(netip.MustParseAddr("2001:db8::"), netip.MustParseAddr("fd00::1"), 150))
	wantError(t, r.Peers, "127.21.1.2", "all neighbors together sent 1100 paths, more than the limit of 1000; 127.21.1.2 sent most, 500: disconnected for")
	eventually(t, "the others' routes", func() bool { rs, _ := r.Routes(); return len(rs) == 600 })
	for _, i := range []int{0, 2} {
		if row := all[i].row(r); row.State != stateEstablished {
			t.Errorf("%+v", row)
		}
	}
}

// Routes are counted, not messages: few messages can change many routes.
func TestChurnIsCountedInRoutes(t *testing.T) {
	const port = 20232
	r := startReflector(t, port, func(c *ReflectorConfig) { c.Groups[0].MaxPrefixes = 1000 })
	a := netip.MustParseAddr("127.21.1.1")
	s := startStray(t, a, port)
	for range 10 {
		s.say(rawbgp.Announce(netip.MustParseAddr("40.0.0.0"), a, 500), rawbgp.Withdraw(netip.MustParseAddr("40.0.0.0"), 500))
	}
	wantError(t, r.Peers, a.String(), "127.21.1.1 announced and withdrew more than 8000 routes within a minute: disconnected for")
}

// The changes of all clients together are limited: the client with the most changes is
// disconnected.
func TestTotalChurn(t *testing.T) {
	const port = 20233
	r := startReflector(t, port, func(c *ReflectorConfig) { c.MaxTotal = 1000 })
	calm, busy := startStray(t, netip.MustParseAddr("127.21.1.1"), port), startStray(t, netip.MustParseAddr("127.21.1.2"), port)
	calm.say(rawbgp.Announce(netip.MustParseAddr("41.0.0.0"), calm.addr, 400))
	eventually(t, "its routes", func() bool { return calm.row(r).Received == 400 })
	for range 10 {
		busy.say(rawbgp.Announce(netip.MustParseAddr("40.0.0.0"), busy.addr, 200), rawbgp.Withdraw(netip.MustParseAddr("40.0.0.0"), 200))
	}
	wantError(t, r.Peers, "127.21.1.2", "all neighbors together announced and withdrew more than 4000 routes within a minute, and 127.21.1.2 did most")
	if row := calm.row(r); row.State != stateEstablished || row.Received != 400 {
		t.Errorf("the calm one: %+v", row)
	}
}

func TestCountRoutes(t *testing.T) {
	first4, first6, hop := netip.MustParseAddr("40.0.0.0"), netip.MustParseAddr("2001:db8::"), netip.MustParseAddr("10.0.0.1")
	for name, c := range map[string]struct {
		messages []byte
		want     int
	}{
		"IPv4":            {rawbgp.Announce(first4, hop, 450), 450},
		"IPv6":            {rawbgp.Announce(first6, first6, 450), 450},
		"IPv4, withdrawn": {rawbgp.Withdraw(first4, 450), 450},
		"IPv6, withdrawn": {rawbgp.Withdraw(first6, 450), 450},
		"no route":        {rawbgp.Update(usual, nil), 1},
		"no UPDATE":       {rawbgp.Message(pkt.BGP_MSG_UPDATE, []byte{255, 255, 0, 0}), 1},
	} {
		got := 0
		s := scanner{updates: true, message: func(_ uint8, body []byte) { got += countRoutes(body, nil) }}
		if s.feed(c.messages); got != c.want {
			t.Errorf("%s: %d routes, want %d", name, got, c.want)
		}
	}
	withID := slices.Concat([]byte{0, 0, 0, 1, 24, 10, 3, 0}, []byte{0, 0, 0, 2, 32, 10, 3, 0, 1})
	if got := countPrefixes(withID, true); got != 2 {
		t.Errorf("with path identifiers: %d, want 2", got)
	}
	for _, cut := range []string{"\x18", "\xff", "\x20\x01"} {
		if got := countPrefixes([]byte(cut), strings.HasPrefix(cut, "\xff")); got != 1 {
			t.Errorf("cut short: %q counts as %d", cut, got)
		}
	}
}

// A neighbor cannot exceed its limit by much before it is disconnected, however fast it
// sends and however long counting takes: it is not read meanwhile.
func TestLimitIsHardlyExceeded(t *testing.T) {
	const port, limit = 20234, 2000
	r := startReflector(t, port, func(c *ReflectorConfig) { c.Groups[0].MaxPrefixes = limit })
	s := startStray(t, netip.MustParseAddr("127.21.1.1"), port)
	eventually(t, "session", func() bool { return s.row(r).State == stateEstablished })
	r.e.counting.Lock() // counting takes long
	s.c.SetWriteDeadline(time.Now().Add(time.Minute))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = s.c.Write(rawbgp.Announce(netip.MustParseAddr("40.0.0.0"), s.addr, 200_000))
	}()
	most, same := uint32(0), 0
	eventually(t, "it is not read any more", func() bool {
		now := s.row(r).Received
		if same++; now != most || now <= limit {
			most, same = now, 0
		}
		return same > 50
	})
	r.e.counting.Unlock()
	wantError(t, r.Peers, s.addr.String(), "a neighbor of balancers may send 2000: disconnected for")
	<-sent
	if most > limit+1000 {
		t.Errorf("it had %d paths, want %d and what 4,096 bytes hold at most", most, limit)
	}
}
