package federation

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/pki"
	"github.com/fairlead/fairlead/vdn"
)

// domain is a controller that is told what it shares, and notes what it hears.
type domain struct {
	name string

	mu       sync.Mutex
	news     chan struct{}
	revision uint64
	peers    []vdn.Peer
	shared   map[string][]vdn.SharedNetwork // by who is told
	heard    []vdn.PeerView
	tellings int
}

func (d *domain) Peers() []vdn.Peer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peers
}

func (d *domain) Offer(to string) vdn.Offer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return vdn.Offer{Domain: d.name, Revision: d.revision, Networks: d.shared[to]}
}

func (d *domain) Wait(ctx context.Context, revision uint64) uint64 {
	for {
		d.mu.Lock()
		now, news := d.revision, d.news
		d.mu.Unlock()
		if now != revision {
			return now
		}
		select {
		case <-ctx.Done():
			return now
		case <-news:
		}
	}
}

func (d *domain) SetOffers(v []vdn.PeerView) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard, d.tellings = v, d.tellings+1
}

func (d *domain) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	d.revision++
	close(d.news)
	d.news = make(chan struct{})
}

// sees waits until a domain knows a peer as wanted says.
func (d *domain) sees(t *testing.T, peer string, wanted func(vdn.PeerView) bool) vdn.PeerView {
	t.Helper()
	var v vdn.PeerView
	testkit.Eventually(t, 20*time.Second, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, v = range d.heard {
			if v.Domain == peer && wanted(v) {
				return nil
			}
		}
		return fmt.Errorf("%s sees %+v", d.name, d.heard)
	})
	return v
}

// site is a domain with its federation, which runs.
type site struct {
	*domain
	keys Keys
	kept string
	url  string
	stop func()
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
	s := &site{
		domain: &domain{name: name, news: make(chan struct{}), revision: 1, shared: map[string][]vdn.SharedNetwork{}},
		keys:   keys,
		kept:   filepath.Join(t.TempDir(), "peers.json"),
	}
	s.start(t, "127.0.0.1:0")
	return s
}

func (s *site) start(t *testing.T, listen string) {
	t.Helper()
	f, err := New(s.domain, Options{Keys: s.keys, Kept: s.kept, Log: slog.New(slog.DiscardHandler), Retry: 10 * time.Millisecond})
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
	all.Go(func() { _ = f.Run(ctx) })
	s.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(s.stop)
}

func (s *site) knows(others ...*site) {
	s.change(func() {
		s.peers = nil
		for _, o := range others {
			s.peers = append(s.peers, vdn.Peer{Domain: o.name, URL: o.url})
		}
	})
}

func connected(v vdn.PeerView) bool { return v.Connected }

func says(words string) func(vdn.PeerView) bool {
	return func(v vdn.PeerView) bool { return !v.Connected && strings.Contains(v.Error, words) }
}

func network(name, prefix string) vdn.SharedNetwork {
	return vdn.SharedNetwork{Name: name, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}}
}

func TestExchange(t *testing.T) {
	ca := authority(t)
	daejeon, busan := newSite(t, "daejeon", certificate(t, ca, "daejeon")), newSite(t, "busan", certificate(t, ca, "busan"))
	genome, climate := network("genome", "10.1.0.0/24"), network("climate", "10.2.0.0/24")
	genome.Hosts = []vdn.SharedHost{{Owner: "lab/reader", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.7")}}}
	busan.change(func() {
		busan.shared["daejeon"] = []vdn.SharedNetwork{genome}
		busan.shared["seoul"] = []vdn.SharedNetwork{climate}
	})
	daejeon.knows(busan)
	if v := daejeon.sees(t, "busan", says("no peer has that domain here")); len(v.Networks) != 0 {
		t.Errorf("told though no peer: %+v", v)
	}
	busan.knows(daejeon)
	v := daejeon.sees(t, "busan", connected)
	if diff := cmp.Diff([]vdn.SharedNetwork{genome}, v.Networks, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
	busan.sees(t, "daejeon", connected)

	busan.change(func() { busan.shared["daejeon"] = []vdn.SharedNetwork{genome, climate} })
	daejeon.sees(t, "busan", func(v vdn.PeerView) bool { return len(v.Networks) == 2 })

	url := busan.url
	busan.stop()
	if v := daejeon.sees(t, "busan", func(v vdn.PeerView) bool { return !v.Connected }); len(v.Networks) != 2 {
		t.Errorf("what a peer said did not stand while it was away: %+v", v)
	}
	daejeon.stop()
	daejeon.heard = nil
	daejeon.start(t, "127.0.0.1:0")
	if v := daejeon.sees(t, "busan", func(v vdn.PeerView) bool { return !v.Connected }); len(v.Networks) != 2 {
		t.Errorf("what a peer said did not stand over a restart: %+v", v)
	}
	busan.start(t, strings.TrimPrefix(url, "https://"))
	daejeon.sees(t, "busan", connected)

	daejeon.knows()
	testkit.Eventually(t, 20*time.Second, func() error {
		daejeon.mu.Lock()
		defer daejeon.mu.Unlock()
		if len(daejeon.heard) > 0 {
			return fmt.Errorf("a peer that is none any more: %+v", daejeon.heard)
		}
		return nil
	})
}

// TestQuiet: what stays the same is told once, whatever else changes.
func TestQuiet(t *testing.T) {
	ca := authority(t)
	a, b := newSite(t, "a", certificate(t, ca, "a")), newSite(t, "b", certificate(t, ca, "b"))
	b.knows(a)
	a.knows(b)
	a.sees(t, "b", connected)
	a.mu.Lock()
	before := a.tellings
	a.mu.Unlock()
	for range 100 {
		b.change(func() {})
	}
	b.change(func() { b.shared["a"] = []vdn.SharedNetwork{network("last", "10.9.0.0/24")} })
	a.sees(t, "b", func(v vdn.PeerView) bool { return len(v.Networks) == 1 })
	a.mu.Lock()
	defer a.mu.Unlock()
	if told := a.tellings - before; told != 1 {
		t.Errorf("told %d times of one change", told)
	}
}

func TestBadCertificates(t *testing.T) {
	ca, other := authority(t), authority(t)
	busan := newSite(t, "busan", certificate(t, ca, "busan"))
	stranger := certificate(t, other, "daejeon")
	late := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	for name, c := range map[string]struct {
		keys Keys
		as   string // whom daejeon takes busan for
		want string
	}{
		"ours is of an authority that the peer does not know": {Keys{stranger.Cert, stranger.Key, ca.Crt("ca")}, "busan", "peer busan does not take our certificate"},
		"theirs is of an authority that we do not know":       {Keys{ca.Crt("busan"), ca.Key("busan"), other.Crt("ca")}, "busan", "unknown authority"},
		"ours is over":            {certificate(t, ca, "over", late), "busan", "peer busan does not take our certificate"},
		"theirs has another name": {certificate(t, ca, "daejeon"), "seoul", "not seoul"},
	} {
		t.Run(name, func(t *testing.T) {
			daejeon := newSite(t, "daejeon", c.keys)
			daejeon.change(func() { daejeon.peers = []vdn.Peer{{Domain: c.as, URL: busan.url}} })
			if v := daejeon.sees(t, c.as, says(c.want)); len(v.Networks) > 0 {
				t.Errorf("networks of a peer that is not trusted: %+v", v)
			}
		})
	}
}

// TestNewCertificate: files that change are read without a restart.
func TestNewCertificate(t *testing.T) {
	old, fresh := authority(t), authority(t)
	busan := newSite(t, "busan", certificate(t, fresh, "busan"))
	keys := certificate(t, old, "daejeon")
	daejeon := newSite(t, "daejeon", keys)
	busan.knows(daejeon)
	daejeon.knows(busan)
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

func TestCheck(t *testing.T) {
	host := network("hosts", "10.3.0.0/24")
	host.Hosts = []vdn.SharedHost{{Owner: "a/b", Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.1")}}}
	bits := vdn.SharedNetwork{Name: "bits", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.1/24")}}
	o := vdn.Offer{Domain: "busan", Networks: []vdn.SharedNetwork{
		network("good", "10.1.0.0/24"), network("good", "10.2.0.0/24"), network("over", "10.1.0.128/25"),
		network("Bad_name", "10.5.0.0/24"), network("all", "0.0.0.0/0"), network("loop", "127.1.0.0/16"),
		bits, {Name: "none"}, host, network("six", "2001:db8::/64"),
	}}
	if err := Check("busan", &o); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range o.Networks {
		got = append(got, n.Refused)
	}
	want := []string{
		"", "name good: there is another of it", "prefix 10.1.0.128/25 overlaps 10.1.0.0/24 of another network of its domain",
		`name "Bad_name": want a DNS label`, "prefix 0.0.0.0/0 cannot be a network's", "prefix 127.1.0.0/16 cannot be a network's",
		`prefix "10.1.0.1/24": want one like 10.1.0.0/24`, "prefixes: there are none",
		`host "a/b": address 10.4.0.1 is in none of its network's prefixes`, "",
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if err := Check("seoul", &o); err == nil {
		t.Error("took another domain's offer")
	}
}
