package multisite_test

import (
	"context"
	"io"
	"net/netip"
	"testing"
	"time"

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
	defer closeSites(t, s)
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

func closeSites(t *testing.T, s *multisite.Sites) {
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	testkit.NoLeftovers(t)
}

// TestDelay measures a round trip, and sends packets of every size through the line.
func TestDelay(t *testing.T) {
	const delay = 20 * time.Millisecond
	s, err := multisite.NewDelayed(t.Context(), delay)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSites(t, s)
	if err := s.Limit(200_000_000); err != nil {
		t.Fatal(err)
	}
	ln, err := s.Lab.Host(s.Busan.Server).Listen("tcp", ":7")
	if err != nil {
		t.Fatal(err)
	}
	const size = 4 << 20
	got := make(chan int64, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		n, _ := io.Copy(io.Discard, c)
		got <- n
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	c, err := s.Lab.Host(s.Daejeon.Node).Dial(ctx, netip.Addr{}, netip.AddrPortFrom(s.Busan.ServerAddr, 7))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*delay || took > 20*delay {
		t.Errorf("a connection takes %s with a delay of %s", took, delay)
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Error(err)
	}
	c.Close()
	if n := <-got; n != size {
		t.Errorf("%d of %d bytes have arrived", n, size)
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
