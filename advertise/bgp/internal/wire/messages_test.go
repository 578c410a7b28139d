package wire

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

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
		"no route":        {rawbgp.Update(rawbgp.Good(hop), nil), 1},
		"no UPDATE":       {rawbgp.Message(pkt.BGP_MSG_UPDATE, []byte{255, 255, 0, 0}), 1},
	} {
		got := 0
		s := Scanner{Updates: true, Message: func(_ uint8, body []byte) { got += CountRoutes(body, nil) }}
		if s.Feed(c.messages); got != c.want {
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
