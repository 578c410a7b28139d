package bgp

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// A reflector sends routes to routers, but does not accept routes from them, so that one
// with a full table neither fills memory nor attracts traffic.
func TestRoutesOfRoutersAreNotAccepted(t *testing.T) {
	const port = 20230
	r := startReflector(t, port)
	router := startStray(t, routerAddr, port)
	eventually(t, "session", func() bool { return router.row(r).State == session.Established })
	for i := range 100 {
		router.say(rawbgp.Announce(netip.AddrFrom4([4]byte{40, byte(i), 0, 0}), routerAddr, 1000))
	}
	s := startSpeaker(t, "127.21.1.1", port)
	if err := s.Set([]route.Route{routeVia(service, "10.0.0.105")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is read", func() bool { return router.row(r).UpdatesReceived == 500 })
	eventually(t, "the balancer's route alone", func() bool { rs, _ := r.Routes(); return show(rs) == "10.1.1.0/24 10.0.0.105" })
	if row := router.row(r); row.State != session.Established || row.Received != 0 {
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
		if row := all[i].row(r); row.State != session.Established {
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
	if row := calm.row(r); row.State != session.Established || row.Received != 400 {
		t.Errorf("the calm one: %+v", row)
	}
}
