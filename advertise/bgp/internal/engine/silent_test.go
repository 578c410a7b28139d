package engine

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestWithout(t *testing.T) {
	for _, c := range []struct{ p, others, want string }{
		{"10.0.0.0/24", "", "[10.0.0.0/24]"},
		{"10.0.0.0/24", "10.0.1.0/25 2001:db8::/64", "[10.0.0.0/24]"},
		{"10.0.0.0/24", "10.0.0.0/16", "[10.0.0.0/24]"}, // shorter prefixes do not count
		{"10.0.0.0/24", "10.0.0.0/24", "[10.0.0.0/24]"},
		{"10.0.0.0/30", "10.0.0.2/32", "[10.0.0.0/31 10.0.0.3/32]"},
		{"10.0.0.0/30", "10.0.0.0/31 10.0.0.2/31", "[]"},
		{"2001:db8::/125", "2001:db8::7/128", "[2001:db8::/126 2001:db8::4/127 2001:db8::6/128]"},
	} {
		var others []netip.Prefix
		for _, text := range strings.Fields(c.others) {
			others = append(others, netip.MustParsePrefix(text))
		}
		if got := fmt.Sprint(without(netip.MustParsePrefix(c.p), others)); got != c.want {
			t.Errorf("%s without %s: %s, want %s", c.p, c.others, got, c.want)
		}
	}
}
