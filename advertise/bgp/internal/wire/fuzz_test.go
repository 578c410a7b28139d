package wire

import (
	"net/netip"
	"testing"
	"unicode/utf8"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// FuzzBodies reads arbitrary bodies of messages. Scrub only removes, and what it has
// removed once is gone; what remains can be passed on.
func FuzzBodies(f *testing.F) {
	for _, m := range rawbgp.Malformed(netip.MustParseAddr("10.0.0.1")) {
		f.Add(m[min(19, len(m)):])
	}
	f.Add(rawbgp.Open(65021, 90, netip.MustParseAddr("10.0.0.1"))[19:])
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzlimit.Time(t)
		if o, err := ReadOpen(body); err == nil {
			_ = o.Check(65021, Hello{AS: 65021, ID: netip.MustParseAddr("10.0.0.1")})
		}
		if text := ShutdownMessage(body); len(text) > 255 || !utf8.ValidString(text) {
			t.Errorf("message %q", text)
		}
		for _, mode := range []pkt.BGPAddPathMode{pkt.BGP_ADD_PATH_NONE, pkt.BGP_ADD_PATH_RECEIVE} {
			for _, twoOctets := range []bool{false, true} {
				d := Decoder{Families: map[pkt.Family]pkt.BGPAddPathMode{pkt.RF_IPv4_UC: mode, pkt.RF_IPv6_UC: mode}, TwoOctets: twoOctets, Extended: true}
				readAgain(t, d, body)
			}
		}
		once := Scrub(body)
		if twice := Scrub(once); len(once) > len(body) || string(twice) != string(once) {
			t.Errorf("%x becomes %x, then %x", body, once, twice)
		}
	})
}

// readAgain writes what was read and reads it again: nothing is lost that is passed on.
func readAgain(t *testing.T, d Decoder, body []byte) {
	u, err := d.Update(body)
	if err != nil {
		return
	}
	if n := u.Routes(); n < 1 || n > len(body)+1 {
		t.Errorf("%d routes in %d bytes", n, len(body))
	}
	e := Encoder{TwoOctets: d.TwoOctets, IDs: map[pkt.Family]bool{}}
	for f, mode := range d.Families {
		e.IDs[f] = mode != pkt.BGP_ADD_PATH_NONE
	}
	for _, a := range u.Announced {
		keys := 0
		for _, m := range e.Announce(a.Attributes, a.Keys) {
			again, err := d.Update(m[pkt.BGP_HEADER_LENGTH:])
			if err != nil || len(again.Announced) != 1 {
				t.Fatalf("%+v becomes %x: %v, %v", a, m, again, err)
			}
			keys += len(again.Announced[0].Keys)
		}
		if keys != len(a.Keys) {
			t.Errorf("of %d routes, %d are passed on", len(a.Keys), keys)
		}
	}
}
