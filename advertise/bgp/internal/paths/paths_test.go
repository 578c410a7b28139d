package paths

import (
	"fmt"
	"net/netip"
	"testing"
)

func offers(list ...any) (out []offer) {
	for i := 0; i < len(list); i += 2 {
		out = append(out, offer{netip.MustParseAddr(list[i].(string)), list[i+1].(float64)})
	}
	return out
}

func TestOffersBecomeShares(t *testing.T) {
	for _, c := range []struct {
		what   string
		offers []offer
		want   string
		uneven string
	}{
		{"sorted, each once", offers("10.0.0.106", 0.0, "10.0.0.105", 0.0, "10.0.0.106", 0.0), "10.1.1.0/24 10.0.0.105 10.0.0.106", ""},
		{"in proportion", offers("10.0.0.106", 3e9, "10.0.0.105", 1e9), "10.1.1.0/24 10.0.0.105*1 10.0.0.106*3", ""},
		{"all alike", offers("10.0.0.106", 1e9, "10.0.0.105", 1e9), "10.1.1.0/24 10.0.0.105 10.0.0.106", ""},
		{"one is missing", offers("10.0.0.106", 0.0, "10.0.0.105", 1e9), "10.1.1.0/24 10.0.0.105 10.0.0.106",
			"10.0.0.105 has a bandwidth and 10.0.0.106 does not: all next hops get equal shares"},
		{"two reflectors differ", offers("10.0.0.105", 1e9, "10.0.0.106", 1e9, "10.0.0.105", 2e9), "10.1.1.0/24 10.0.0.105*2 10.0.0.106*1", ""},
	} {
		set := fromOffers(netip.MustParsePrefix("10.1.1.0/24"), c.offers)
		got := set.Prefix.String()
		for i, nh := range set.NextHops {
			got += " " + nh.String()
			if len(set.Weights) > 0 {
				got += fmt.Sprintf("*%d", set.Weights[i])
			}
		}
		if got != c.want || set.Uneven != c.uneven {
			t.Errorf("%s: %s, %q; want %s, %q", c.what, got, set.Uneven, c.want, c.uneven)
		}
	}
}

// The community in wire format, transitive (0x00) and not (0x40).
func TestBandwidthOfBothKinds(t *testing.T) {
	for _, wire := range [][]byte{
		{0x40, 0x04, 0xfd, 0xfd, 0x4c, 0xee, 0x6b, 0x28},
		{0x00, 0x04, 0xfd, 0xfd, 0x4c, 0xee, 0x6b, 0x28},
	} {
		if got := offered(string(wire)); got != 125e6 {
			t.Errorf("bandwidth of %x is %f, want 125e6", wire, got)
		}
	}
	both := bandwidth(3, 65021, false)
	if len(both) != 16 || len(bandwidth(3, 65021, true)) != 8 || offered(both) != 3*bandwidthOfWeight {
		t.Errorf("a weight of 3 is sent as %x", both)
	}
}
