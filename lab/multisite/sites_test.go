package multisite_test

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/lab/multisite"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestEachReachesEach connects every node and server to every other one, also over a
// limited link.
func TestEachReachesEach(t *testing.T) {
	s, err := multisite.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		testkit.NoLeftovers(t)
	}()
	if err := s.Limit(20_000_000); err != nil {
		t.Fatal(err)
	}
	hosts := map[string]netip.Addr{}
	for _, site := range []*multisite.Site{s.Daejeon, s.Busan} {
		hosts[site.Node], hosts[site.Server] = site.NodeAddr, site.ServerAddr
	}
	for name := range hosts {
		if _, err := s.Lab.Host(name).Listen("tcp", ":7"); err != nil {
			t.Fatal(err)
		}
	}
	for from := range hosts {
		for to, addr := range hosts {
			c, err := s.Lab.Host(from).Dial(t.Context(), netip.Addr{}, netip.AddrPortFrom(addr, 7))
			if err != nil {
				t.Errorf("%s to %s: %v", from, to, err)
				continue
			}
			c.Close()
		}
	}
	if err := s.Limit(0); err != nil {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	s, err := multisite.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for what, got := range map[string]string{
		"10.1.1.0/24":  s.Daejeon.OnNode().String(),
		"10.2.2.0/24":  s.Busan.OnSpare().String(),
		"10.2.18.0/24": s.Busan.Bridge(2).String(),
		"10.1.0.2":     s.Daejeon.NodeAddr.String(),
		"10.2.3.2":     s.Busan.ServerAddr.String(),
		"10.1.31.7":    multisite.Nth(s.Daejeon.Bridge(15), 7).String(),
	} {
		if got != what {
			t.Errorf("%s, want %s", got, what)
		}
	}
}
