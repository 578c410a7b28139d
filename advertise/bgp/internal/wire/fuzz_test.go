package wire

import (
	"net/netip"
	"testing"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// FuzzBodies reads arbitrary bodies of messages. Scrub only removes, and what it has
// removed once is gone.
func FuzzBodies(f *testing.F) {
	for _, m := range rawbgp.Malformed(netip.MustParseAddr("10.0.0.1")) {
		f.Add(m[min(19, len(m)):])
	}
	f.Add(rawbgp.Open(65021, 90, netip.MustParseAddr("10.0.0.1"))[19:])
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzlimit.Time(t)
		ReadOpen(body)
		WantsNoHold(body)
		NotificationCode(body)
		for _, ids := range []map[pkt.Family]bool{nil, {pkt.RF_IPv4_UC: true, pkt.RF_IPv6_UC: true}} {
			if n := CountRoutes(body, ids); n < 1 || n > len(body)+1 {
				t.Errorf("%d routes in %d bytes", n, len(body))
			}
		}
		once := Scrub(body)
		if twice := Scrub(once); len(once) > len(body) || string(twice) != string(once) {
			t.Errorf("%x becomes %x, then %x", body, once, twice)
		}
	})
}
