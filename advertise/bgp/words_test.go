package bgp

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit"
)

// wantError waits until a peer's row contains want.
func wantError(t *testing.T, peers func() []advertise.Peer, address, want string) {
	t.Helper()
	var last string
	for range 4000 {
		for _, p := range peers() {
			if p.Address == address {
				last = p.LastError
			}
		}
		if strings.Contains(last, want) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("peer %s: last error %q, want %q", address, last, want)
}

func TestWrongAS(t *testing.T) {
	const port = 20181
	r := startReflector(t, port)
	s := startSpeaker(t, "127.21.1.1", port, func(c *SpeakerConfig) { c.AS = 65000; c.Peers[0].AS = testAS })
	wantError(t, s.Peers, "127.21.0.109", "peer 127.21.0.109 in AS 65021 does not expect AS 65000: correct --local-asn or the peer")
	wantError(t, r.Peers, "127.21.1.1", "peer 127.21.1.1 is in AS 65000, expected 65021: set --peer to ADDRESS@AS with the peer's AS, or correct the peer")

	expects := startSpeaker(t, "127.21.1.2", port, func(c *SpeakerConfig) { c.Peers[0].AS = 65099 })
	wantError(t, expects.Peers, "127.21.0.109", "peer 127.21.0.109 is in AS 65021, expected 65099: set --peer to ADDRESS@AS with the peer's AS, or correct the peer")
	for _, p := range expects.Peers() {
		if p.State == session.Established {
			t.Errorf("session is up: %+v", p)
		}
	}
	good := startSpeaker(t, "127.21.1.3", port)
	eventually(t, "a right speaker is not held up", func() bool { return good.Peers()[0].State == session.Established })
}

func TestWrongPassword(t *testing.T) {
	const port = 20182
	var log testkit.Output
	startReflector(t, port, func(c *ReflectorConfig) {
		c.Groups[0].Password = "right"
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	wrong := startSpeaker(t, "127.21.1.1", port, func(c *SpeakerConfig) { c.Peers[0].Password = "wrong" })
	none := startSpeaker(t, "127.21.1.2", port)
	right := startSpeaker(t, "127.21.1.3", port, func(c *SpeakerConfig) { c.Peers[0].Password = "right" })
	eventually(t, "session with the right password", func() bool { return right.Peers()[0].State == session.Established })
	wantError(t, wrong.Peers, "127.21.0.109", "no answer from 127.21.0.109:20182 within 1s: it is down or unreachable, a filter drops BGP, or the TCP MD5 passwords differ")
	wantError(t, none.Peers, "127.21.0.109", "or it requires a TCP MD5 password")
	eventually(t, "the reflector's log names the signatures", func() bool {
		return strings.Contains(log.String(), "segments were dropped for their TCP MD5 signature")
	})
}

func TestUnwelcome(t *testing.T) {
	const port = 20183
	s := startSpeaker(t, "127.21.1.1", port)
	wantError(t, s.Peers, "127.21.0.109", "127.21.0.109:20183 refuses connections: nothing listens there")
	r := startReflector(t, port)
	eventually(t, "session", func() bool { return s.Peers()[0].State == session.Established })

	unknown := startSpeaker(t, "127.99.0.1", port)
	wantError(t, r.Peers, "127.99.0.1", "rejected 127.99.0.1: no neighbor group includes this address")
	wantError(t, unknown.Peers, "127.21.0.109", "the peer closed the connection without a notification: it has no neighbor with our address")

	twin := startSpeaker(t, "127.21.1.2", port, func(c *SpeakerConfig) { c.RouterID = reflectorAddr })
	wantError(t, twin.Peers, "127.21.0.109", "has the same router ID as this speaker: router IDs must differ")
	nowhere := startSpeaker(t, "127.21.1.3", port, func(c *SpeakerConfig) {
		c.RouterID, c.LocalAddress = c.LocalAddress, netip.MustParseAddr("192.0.2.1")
	})
	wantError(t, nowhere.Peers, "127.21.0.109", "192.0.2.1 is not an address of this machine")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Peers, "127.21.1.1", "peer 127.21.1.1 closed the session: administrative shutdown")
}

func TestValidate(t *testing.T) {
	good := func() SpeakerConfig {
		return SpeakerConfig{AS: testAS, LocalAddress: netip.MustParseAddr("172.16.5.2"), Peers: []PeerConfig{{Address: reflectorAddr}}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*SpeakerConfig){
		"as: 0 is reserved":     func(c *SpeakerConfig) { c.AS = 0 },
		"as: 23456 is reserved": func(c *SpeakerConfig) { c.AS = 23456 },
		"routerID: not set":     func(c *SpeakerConfig) { c.LocalAddress = netip.MustParseAddr("fd00::1"); c.Peers = nil },
		"peers[0].address":      func(c *SpeakerConfig) { c.Peers[0].Address = netip.Addr{} },
		"peers[0].address: 172.16.5.2 is the speaker's own": func(c *SpeakerConfig) { c.Peers[0].Address = c.LocalAddress },
		"are of different families":                         func(c *SpeakerConfig) { c.Peers[0].Address = netip.MustParseAddr("fd00::1") },
		"peers[1].address: 127.21.0.109 is peers[0]":        func(c *SpeakerConfig) { c.Peers = append(c.Peers, c.Peers[0]) },
		"peers[0].password: 81 bytes":                       func(c *SpeakerConfig) { c.Peers[0].Password = strings.Repeat("x", 81) },
		"peers[0].holdTime: 2s: use whole seconds":          func(c *SpeakerConfig) { c.Peers[0].HoldTime = 2 * time.Second },
		`peers[0].name: "rack 1" has a space`:               func(c *SpeakerConfig) { c.Peers[0].Name = "rack 1" },
		"peers[1].name: a is peers[0]": func(c *SpeakerConfig) {
			c.Peers[0].Name = "a"
			c.Peers = append(c.Peers, PeerConfig{Name: "a", Address: routerAddr})
		},
		"peers[0].address: fe80::1 is link-local":    func(c *SpeakerConfig) { c.Peers[0].Address = netip.MustParseAddr("fe80::1") },
		"has a zone but is not a link-local address": func(c *SpeakerConfig) { c.Peers[0].Address = netip.MustParseAddr("fd00::1%eth0") },
		"fe80::1 is peers[0] already": func(c *SpeakerConfig) {
			c.RouterID, c.LocalAddress = c.LocalAddress, netip.Addr{}
			c.Peers = []PeerConfig{{Address: netip.MustParseAddr("fe80::1%eth0")}, {Address: netip.MustParseAddr("fe80::1%eth1")}}
		},
		"peers[1].sourceInterface: peers[0] is the router on eth0 already": func(c *SpeakerConfig) {
			c.Peers = []PeerConfig{{Name: "a", SourceInterface: "eth0"}, {Name: "b", SourceInterface: "eth0"}}
		},
		"peers[0].holdTime: 1s: use whole":                                func(c *SpeakerConfig) { c.Peers[0] = PeerConfig{SourceInterface: "eth0", HoldTime: time.Second} },
		"peers[0].keepalive: 1.5s: use whole seconds":                     func(c *SpeakerConfig) { c.Peers[0].Keepalive = 1500 * time.Millisecond },
		"peers[0].keepalive: 9s is not less than the hold time of 9s":     func(c *SpeakerConfig) { c.Peers[0].Keepalive = 9 * time.Second },
		"peers[0].connectRetry: 1ms: use 100ms to 1h":                     func(c *SpeakerConfig) { c.Peers[0].ConnectRetry = time.Millisecond },
		"peers[0].ebgpMultihop: 1 applies only to peers in another AS":    func(c *SpeakerConfig) { c.Peers[0].EBGPMultihop = 1 },
		"peers[0].ebgpMultihop: 2 and ttlSecurity are mutually exclusive": func(c *SpeakerConfig) { c.Peers[0].AS, c.Peers[0].EBGPMultihop, c.Peers[0].TTLSecurity = 65000, 2, 1 },
		"peers[0].ttlSecurity: must be 0 to 254":                          func(c *SpeakerConfig) { c.Peers[0].TTLSecurity = 255 },
		"peers[0].timing: BFD interval 1ms":                               func(c *SpeakerConfig) { c.Peers[0].Timing = bfd.Timing{Interval: time.Millisecond} },
	} {
		c := good()
		spoil(&c)
		_, err := NewSpeaker(c)
		if want == "routerID: not set" {
			c.Peers = good().Peers
			_, err = NewSpeaker(c)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	group := func(prefix string, sendMax uint8, as uint32) ReflectorConfig {
		return ReflectorConfig{AS: testAS, RouterID: reflectorAddr, Groups: []NeighborGroup{
			{Name: "pods", Prefixes: []netip.Prefix{speakers}},
			{Name: "bad", Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}, SendMax: sendMax, AS: as}}}
	}
	for want, c := range map[string]ReflectorConfig{
		"groups: must not be empty": {AS: testAS, RouterID: reflectorAddr},
		"groups[bad].prefixes: 10.0.0.1/8 has host bits set; use 10.0.0.0/8":                       group("10.0.0.1/8", 0, 0),
		"groups[bad].prefixes: 127.21.1.0/24 already belongs to group pods":                        group("127.21.1.0/24", 0, 0),
		"groups[bad].as: 65099; a router that receives routes must be in the reflector's AS 65021": group("10.0.0.0/8", 9, 65099),
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func with(a route.Attributes) route.Route {
	r := routeVia(service, "10.0.0.1")
	r.Attributes = a
	return r
}

func TestSetRefuses(t *testing.T) {
	s := startSpeaker(t, "127.21.1.1", 20184)
	for want, routes := range map[string][]route.Route{
		"a route has no prefix":                                             {{}},
		"10.1.1.1/24: it has host bits set; use 10.1.1.0/24":                {{Prefix: netip.MustParsePrefix("10.1.1.1/24"), NextHop: reflectorAddr}},
		"10.1.1.0/24: it has no next hop":                                   {{Prefix: service}},
		"fd00:1:1::/64: by 10.0.0.1: an IPv6 prefix needs an IPv6 next hop": {routeVia(service6, "10.0.0.1")},
		"10.1.1.0/24: duplicate route with different attributes, 10.1.1.0/24 via 10.0.0.1 and 10.1.1.0/24 via 10.0.0.2": {routeVia(service, "10.0.0.1"), routeVia(service, "10.0.0.2")},
		"10.1.1.0/24: asPathPrepend: 11 is not between 0 and 10":                                                        {with(route.Attributes{ASPathPrepend: 11})},
		`10.1.1.0/24: communities: "no-exprot" is not a community`:                                                      {with(route.Attributes{Communities: "no-exprot"})},
		"10.1.1.0/24: communities: AS 4294967295 is reserved":                                                           {with(route.Attributes{Communities: "4294967295:1:0"})},
	} {
		if err := s.Set(routes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := s.Set([]route.Route{routeVia(service, "10.0.0.1"), routeVia(service, "10.0.0.1")}); err != nil {
		t.Errorf("the same route twice: %v", err)
	}
}
