package federation

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/pki"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
)

// site is a domain with a running controller and federation.
type site struct {
	*server.Server
	store *store.Store
	name  string
	keys  Keys
	data  string
	url   string
	stop  func()
}

// sees waits until a domain's view of a peer satisfies wanted.
func (s *site) sees(t *testing.T, peer string, wanted func(vdn.PeerView) bool) (v vdn.PeerView) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		for _, v = range s.Peers() {
			if v.Domain == peer && wanted(v) {
				return nil
			}
		}
		return fmt.Errorf("%s sees %+v", s.name, s.Peers())
	})
	return v
}

func certificate(t *testing.T, a *pki.Authority, name string, more ...func(*x509.Certificate)) Keys {
	t.Helper()
	template := &x509.Certificate{DNSNames: []string{name}}
	for _, f := range more {
		f(template)
	}
	cert, key, err := a.Issue(template)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Write(name, cert, key); err != nil {
		t.Fatal(err)
	}
	return Keys{Cert: a.Crt(name), Key: a.Key(name), CA: a.Crt("ca")}
}

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	a, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newSite(t *testing.T, name string, keys Keys) *site {
	t.Helper()
	s := &site{name: name, keys: keys, data: t.TempDir()}
	s.start(t, "127.0.0.1:0")
	return s
}

func (s *site) start(t *testing.T, listen string) {
	t.Helper()
	var err error
	if s.store, err = store.Open(s.data, s.name); err != nil {
		t.Fatal(err)
	}
	s.Server = server.New(server.Options{Store: s.store, Log: slog.New(slog.DiscardHandler)})
	f, err := New(s.Server, Options{Keys: s.keys, Log: slog.New(slog.DiscardHandler), Retry: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := f.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	all.Go(func() { f.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
}

func (s *site) knows(t *testing.T, domain, url string) {
	t.Helper()
	if _, err := s.store.PutPeer(t.Context(), vdn.Peer{Domain: domain, URL: url, NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}); err != nil {
		t.Fatal(err)
	}
}

// shares creates a network shared with a domain.
func (s *site) shares(t *testing.T, with, name, prefix string) {
	t.Helper()
	_, err := s.store.PutNetwork(t.Context(), vdn.Network{
		Name: name, Devices: []string{"eth1"}, SharedWith: []string{with}, Subnets: []vdn.Subnet{{CIDR: netip.MustParsePrefix(prefix)}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// has checks that a peer shares exactly these networks and that all are accepted.
func has(names ...string) func(vdn.PeerView) bool {
	return func(v vdn.PeerView) bool {
		var got []string
		for _, n := range v.Networks {
			got = append(got, n.Name+n.Refused)
		}
		return slices.Equal(got, names)
	}
}

func connected(v vdn.PeerView) bool { return v.Connected }

func says(words string) func(vdn.PeerView) bool {
	return func(v vdn.PeerView) bool { return !v.Connected && strings.Contains(v.Error, words) }
}

func TestExchange(t *testing.T) {
	ca := authority(t)
	daejeon, busan := newSite(t, "daejeon", certificate(t, ca, "daejeon")), newSite(t, "busan", certificate(t, ca, "busan"))
	busan.shares(t, "daejeon", "genome", "10.1.0.0/24")
	busan.shares(t, "seoul", "climate", "10.2.0.0/24")
	daejeon.knows(t, "busan", busan.url)
	if v := daejeon.sees(t, "busan", says("no peer with that domain is configured")); len(v.Networks) != 0 {
		t.Errorf("received networks without being a peer: %+v", v)
	}
	busan.knows(t, "daejeon", daejeon.url)
	daejeon.sees(t, "busan", func(v vdn.PeerView) bool { return v.Connected && has("genome")(v) })
	busan.sees(t, "daejeon", connected)

	lease, _, err := busan.store.Attach(t.Context(), vdn.AttachmentRequest{Network: "genome", Node: "n1", Container: "c", Interface: "eth0", Owner: "lab/reader"}, 1)
	if err == nil {
		_, err = busan.store.Up(t.Context(), lease.Attachment.ID, vdn.UpReport{Device: "eth1", MAC: "02:00:00:00:00:01", NetNS: "/run/netns/c"})
	}
	if err != nil {
		t.Fatal(err)
	}
	v := daejeon.sees(t, "busan", func(v vdn.PeerView) bool { return has("genome")(v) && len(v.Networks[0].Hosts) == 1 })
	if h := v.Networks[0].Hosts[0]; h.Owner != "lab/reader" || h.Addresses[0] != lease.Attachment.Addresses[0].Addr() {
		t.Errorf("received host %+v, want %+v", h, lease.Attachment)
	}

	url := busan.url
	busan.stop()
	daejeon.sees(t, "busan", func(v vdn.PeerView) bool { return !v.Connected && has("genome")(v) })
	daejeon.stop()
	daejeon.start(t, "127.0.0.1:0")
	daejeon.sees(t, "busan", func(v vdn.PeerView) bool { return !v.Connected && has("genome")(v) })
	busan.start(t, strings.TrimPrefix(url, "https://"))
	daejeon.sees(t, "busan", connected)
	busan.shares(t, "daejeon", "weather", "10.3.0.0/24")
	daejeon.sees(t, "busan", has("genome", "weather"))

	if err := daejeon.store.DeletePeer(t.Context(), "busan"); err != nil {
		t.Fatal(err)
	}
	if all := daejeon.Peers(); len(all) != 0 {
		t.Errorf("a peer that is none any more: %+v", all)
	}
}

// TestOverlap checks that a network that overlaps ours is rejected by name and others are
// accepted.
func TestOverlap(t *testing.T) {
	ca := authority(t)
	daejeon, busan := newSite(t, "daejeon", certificate(t, ca, "daejeon")), newSite(t, "busan", certificate(t, ca, "busan"))
	daejeon.shares(t, "busan", "ours", "10.1.0.0/16")
	busan.shares(t, "daejeon", "genome", "10.1.7.0/24")
	busan.shares(t, "daejeon", "good", "10.2.0.0/24")
	busan.knows(t, "daejeon", daejeon.url)
	daejeon.knows(t, "busan", busan.url)
	v := daejeon.sees(t, "busan", func(v vdn.PeerView) bool { return len(v.Networks) == 2 })
	if why := v.Networks[0].Refused; !strings.Contains(why, "10.1.7.0/24 overlaps") || v.Networks[1].Refused != "" {
		t.Errorf("got %+v", v.Networks)
	}
}

// TestHeals checks that an offer that was not stored, or was lost, is stored again even
// though the peer sends nothing new.
func TestHeals(t *testing.T) {
	kept, err := store.Open(t.TempDir(), "daejeon")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &site{Server: server.New(server.Options{Store: kept}), store: kept} // queries nobody by itself
	f := &Federation{domain: s.Server, o: Options{Log: slog.New(slog.DiscardHandler)}}
	view := vdn.PeerView{Peer: vdn.Peer{Domain: "busan"}, Networks: []vdn.SharedNetwork{{Name: "genome", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}}}}
	for range 2 {
		s.knows(t, "busan", "https://127.0.0.1:1")
		f.storeOffer(t.Context(), &view, nil)
		if all := s.Peers(); len(all) != 1 || !has("genome")(all[0]) {
			t.Errorf("kept is %+v", all)
		}
		if err := s.store.DeletePeer(t.Context(), "busan"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQuiet checks that an unchanged offer is not sent again, whatever else changes.
func TestQuiet(t *testing.T) {
	ca := authority(t)
	a, b := newSite(t, "a", certificate(t, ca, "a")), newSite(t, "b", certificate(t, ca, "b"))
	b.knows(t, "a", a.url)
	a.knows(t, "b", b.url)
	a.sees(t, "b", connected)
	b.sees(t, "a", connected)
	before := a.store.Revision()
	for i := range 100 {
		b.shares(t, "others", fmt.Sprintf("n%d", i), fmt.Sprintf("10.7.%d.0/24", i))
	}
	b.shares(t, "a", "last", "10.9.0.0/24")
	a.sees(t, "b", has("last"))
	if changes := a.store.Revision() - before; changes != 1 {
		t.Errorf("%d changes by one", changes)
	}
}

func TestBadCertificates(t *testing.T) {
	ca, other := authority(t), authority(t)
	busan := newSite(t, "busan", certificate(t, ca, "busan"))
	unknown := certificate(t, other, "daejeon")
	late := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	for name, c := range map[string]struct {
		keys Keys
		as   string // the name by which daejeon knows busan
		want string
	}{
		"ours is of an authority that the peer does not know": {Keys{unknown.Cert, unknown.Key, ca.Crt("ca")}, "busan", "peer busan rejects our certificate"},
		"theirs is of an authority that we do not know":       {Keys{ca.Crt("busan"), ca.Key("busan"), other.Crt("ca")}, "busan", "unknown authority"},
		"ours is over":            {certificate(t, ca, "over", late), "busan", "peer busan rejects our certificate"},
		"theirs has another name": {certificate(t, ca, "daejeon"), "seoul", "not seoul"},
	} {
		t.Run(name, func(t *testing.T) {
			daejeon := newSite(t, "daejeon", c.keys)
			daejeon.knows(t, c.as, busan.url)
			if v := daejeon.sees(t, c.as, says(c.want)); len(v.Networks) > 0 {
				t.Errorf("networks of a peer that is not trusted: %+v", v)
			}
		})
	}
}

// TestNewCertificate checks that changed files are read without a restart.
func TestNewCertificate(t *testing.T) {
	old, fresh := authority(t), authority(t)
	busan := newSite(t, "busan", certificate(t, fresh, "busan"))
	keys := certificate(t, old, "daejeon")
	daejeon := newSite(t, "daejeon", keys)
	busan.knows(t, "daejeon", daejeon.url)
	daejeon.knows(t, "busan", busan.url)
	daejeon.sees(t, "busan", says("unknown authority"))
	cert, key, err := fresh.Issue(&x509.Certificate{DNSNames: []string{"daejeon"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Write("daejeon", cert, key); err != nil {
		t.Fatal(err)
	}
	if err := old.Write("ca", fresh.PEM, nil); err != nil {
		t.Fatal(err)
	}
	daejeon.sees(t, "busan", connected)
	busan.sees(t, "daejeon", connected)
}
