package bgp

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/route"
)

// What a session was sent must equal what is due, attribute by attribute: otherwise each
// audit would send everything again.
func TestDueIsWhatIsSent(t *testing.T) {
	const port = 20192
	for i, as := range []uint32{testAS, 65110} {
		t.Run(fmt.Sprint(as), func(t *testing.T) {
			local := fmt.Sprintf("127.21.2.%d", i+1)
			far := netip.AddrFrom4([4]byte{127, 21, 3, byte(i + 1)})
			r, err := NewReflector(ReflectorConfig{AS: as, RouterID: far, Listen: []netip.Addr{far}, Port: port,
				Groups: []NeighborGroup{{Name: "balancer", AS: testAS, Prefixes: []netip.Prefix{netip.MustParsePrefix(local + "/32")}}}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s := startSpeaker(t, local, port, func(c *SpeakerConfig) { c.Peers = []PeerConfig{{Name: "far", Address: far, Port: port, AS: as}} })
			eventually(t, "session", func() bool { return s.Peers()[0].State == stateEstablished })
			for _, a := range []route.Attributes{
				{}, {MED: 7}, {LocalPreference: 7}, {ASPathPrepend: 1}, {ASPathPrepend: route.MaxASPathPrepend}, {Weight: 1}, {Weight: 1 << 20},
				{Communities: "65000:1 no-export"}, {Communities: "1:2:3"}, {Communities: "65000:1 1:2:3"}, {Peers: "far near"}, {Peers: "near"},
				{Communities: "65000:1 blackhole 4200000000:1:1", LocalPreference: 9, MED: 8, ASPathPrepend: 3, Weight: 5, Peers: "far"},
			} {
				routes := []route.Route{routeVia(service, "10.0.0.105"), routeVia(service6, "fd00::105")}
				routes[0].Attributes, routes[1].Attributes = a, a
				if err := s.Set(routes); err != nil {
					t.Fatal(err)
				}
				taps := s.e.taps()
				if len(taps) != 1 {
					t.Fatalf("%d sessions", len(taps))
				}
				due := due(s, taps[0])
				if want := 2; len(due) != want && a.Peers != "near" || a.Peers == "near" && len(due) != 0 {
					t.Errorf("%s: %d prefixes are due", a, len(due))
				}
				eventually(t, "what is due is sent", func() bool { return holds(taps[0], due) })
				d, err := s.e.compare(taps[0])
				if err != nil || d.missing != 0 || len(d.stale) != 0 {
					taps[0].mu.Lock()
					t.Errorf("%s: %d missing, stale %v, %v; sent %v, due %v", a, d.missing, d.stale, err, maps.Clone(taps[0].sent), due)
					taps[0].mu.Unlock()
				}
			}
		})
	}
}

// due returns what a session should have been sent.
func due(s *Speaker, t *tap) map[path]sentRoute {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[path]sentRoute{}
	for p, r := range s.announced {
		if attrs, is := s.e.exported(t.group, s.path(r).Attrs); is {
			all[path{prefix: p}] = sentRoute{t.nextHopFor(r.NextHop), words(attrs)}
		}
	}
	return all
}

// holds reports whether exactly this has been written.
func holds(t *tap, all map[path]sentRoute) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Equal(t.sent, all)
}
