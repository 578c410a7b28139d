package advertise

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/route"
)

// A failure of one Announcer does not affect the others, and is reported.
func TestTogether(t *testing.T) {
	good, bad := &Fake{}, &Fake{}
	fault := errors.New("no")
	bad.Fail(fault)
	both := Together{bad, good}
	wanted := route.Route{Prefix: netip.MustParsePrefix("10.1.1.1/32")}
	if err := both.Set([]route.Route{wanted}); !errors.Is(err, fault) {
		t.Errorf("error %v", err)
	}
	if got := good.Routes(); len(got) != 1 || got[0] != wanted {
		t.Errorf("routes %v", got)
	}
	good.SetPeers([]Peer{{Address: "a"}})
	bad.SetPeers([]Peer{{Address: "b"}})
	if got := both.Peers(); len(got) != 2 {
		t.Errorf("peers %v", got)
	}
	if err := both.Close(); err != nil || good.Set(nil) == nil {
		t.Errorf("not closed: %v", err)
	}
}

// Each Announcer gets the routes of its mode only.
func TestOnly(t *testing.T) {
	var routes []route.Route
	for i, m := range []route.Mode{route.ModeAny, route.ModeBGP, route.ModeLayer2, route.ModeCloud, route.ModeBGP.With(route.ModeLayer2), route.ModeBGP.With(route.ModeBGP)} {
		routes = append(routes, route.Route{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}), 32), Attributes: route.Attributes{Mode: m}})
	}
	for mode, want := range map[route.Mode][]int{route.ModeBGP: {0, 1, 4, 5}, route.ModeLayer2: {0, 2, 4}, route.ModeCloud: {0, 3, 4}} {
		f := &Fake{}
		if err := Only(mode, f).Set(routes); err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, r := range f.Routes() {
			got = append(got, int(r.Prefix.Addr().As4()[3]))
			if r.Mode != route.ModeAny {
				t.Errorf("%s receives the mode %s", mode, r.Mode)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", mode, got, want)
		}
	}
}
