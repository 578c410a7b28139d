package config

import (
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzPeer checks that a parsed peer has an address, a port and an AS number, and that
// its string parses to the same peer.
func FuzzPeer(f *testing.F) {
	for _, text := range []string{"10.0.0.109", "10.0.0.109:179", "10.0.0.109@65021", "10.0.0.109:1790@4294967295", "[fd00::1]:179@1", "fd00::1", "fe80::1%eth0@7", "@", "x@1", "10.0.0.1@0", "10.0.0.1:0"} {
		f.Add(text, uint32(65000))
	}
	f.Fuzz(func(t *testing.T, text string, as uint32) {
		fuzzlimit.Time(t)
		p, err := ParsePeer(text, as)
		if err != nil {
			return
		}
		if !p.Address.IsValid() || p.Address.Port() == 0 || p.AS == 0 && as != 0 {
			t.Errorf("%q is taken as %+v", text, p)
		}
		if again, err := ParsePeer(p.Address.String(), p.AS); err != nil || again != p {
			t.Errorf("%q is %+v, and that is %+v, %v", text, p, again, err)
		}
	})
}
