package announce

import (
	"errors"
	"net/netip"
	"testing"
)

// What one cannot do the others do none the less, and it is told.
func TestTogether(t *testing.T) {
	good, bad := &Fake{}, &Fake{}
	fault := errors.New("no")
	bad.Fail(fault)
	both := Together{bad, good}
	route := Route{Prefix: netip.MustParsePrefix("10.1.1.1/32")}
	if err := both.Set([]Route{route}); !errors.Is(err, fault) {
		t.Errorf("error %v", err)
	}
	if got := good.Routes(); len(got) != 1 || got[0] != route {
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
