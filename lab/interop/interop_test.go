package interop

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/actor"
)

// meeting is a network with our processes and theirs. Routes through 105 arrive in a
// session over IPv4, and routes through 106 in one over IPv6.
//
//	node-105, -106, -107 ── switch ── reflector 109, second 108, router 110, speaker 111
type meeting struct {
	*lab.Lab
	t *testing.T
}

const interopPassword = "sesame"

// drained is a service for which 106 advertises that it drains.
var drained = netip.MustParsePrefix("10.1.1.2/32")

func meet(t *testing.T) meeting {
	t.Helper()
	top := lab.Topology{Switches: []lab.SwitchSpec{{Name: "switch"}}}
	for name, n := range map[string]int{"node-105": 105, "node-106": 106, "node-107": 107, "second": 108, "reflector": 109, "router": 110, "speaker": 111} {
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: name})
		top.Links = append(top.Links, lab.Link{A: lab.At(name, "eth0", fmt.Sprintf("10.0.0.%d/16", n), fmt.Sprintf("fd00::%d/64", n)), B: lab.Port("switch")})
	}
	l := labtest.Build(t, top)
	return meeting{l, t}
}

// daemon runs one of theirs with a configuration from the documentation.
func (m meeting) daemon(host string, kind Kind, c Config) *Daemon {
	m.t.Helper()
	c.BFD = true
	return start(m.t, m.Host(host), kind, c)
}

// start runs a daemon in a host until the test ends. It skips the test if the daemon is
// not installed.
func start(t *testing.T, h *lab.Host, kind Kind, c Config) *Daemon {
	t.Helper()
	d, err := Start(h.Namespace(), kind, c)
	if err != nil && strings.Contains(err.Error(), "install Debian's package") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.Log())
		}
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func guide(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "docs"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// speakers are 105 and 106, each with one peer.
func (m meeting) speakers(over4, over6 bgp.PeerConfig) (all []*balancer) {
	m.t.Helper()
	for n, p := range map[int]bgp.PeerConfig{105: over4, 106: over6} {
		all = append(all, m.speaker(n, p))
	}
	return all
}

func (m meeting) speaker(n int, p bgp.PeerConfig) *balancer {
	m.t.Helper()
	ip4, ip6 := netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n)), netip.MustParseAddr(fmt.Sprintf("fd00::%d", n))
	c := bgp.SpeakerConfig{AS: 65021, RouterID: ip4, LocalAddress: ip4, Peers: []bgp.PeerConfig{p}}
	if p.Address.Is6() {
		c.LocalAddress = ip6
	}
	marks := "65000:1 64999:1:2"
	if n == 106 {
		marks += " graceful-shutdown"
	}
	b := startBalancer(m.t, m.Host(fmt.Sprintf("node-%d", n)), c)
	b.set(route.Route{Prefix: prefix4, NextHop: ip4}, route.Route{Prefix: prefix6, NextHop: ip6},
		route.Route{Prefix: drained, NextHop: ip4, Attributes: route.Attributes{Communities: route.Communities(marks)}})
	return b
}

// rejected checks that a load balancer with another password is not accepted.
func (m meeting) rejected(p bgp.PeerConfig) {
	m.t.Helper()
	p.Password = "another"
	b := m.speaker(107, p)
	testkit.Eventually(m.t, time.Minute, func() error {
		if p := b.peers()[0]; p.State == "established" || !strings.Contains(p.LastError, "passwords differ") {
			return fmt.Errorf("with another password: %+v", p)
		}
		return nil
	})
	if hops := m.hops(prefix4); slices.Contains(hops, "10.0.0.107") {
		m.t.Errorf("with another password it is a next hop: %v", hops)
	}
}

func (m meeting) reflector(host string, n int, more ...bgp.NeighborGroup) *actor.Actor[order, report] {
	m.t.Helper()
	return enact(m.t, m.Host(host), part{Reflector: &bgp.ReflectorConfig{AS: 65021, RouterID: netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n)),
		ClusterID: netip.MustParseAddr("10.0.0.109"), Groups: append(more, bgp.NeighborGroup{Name: "router", Prefixes: single("10.0.0.110", "fd00::110"), SendMax: 16,
			Password: interopPassword, BFD: true})}})
}

func (m meeting) router() *actor.Actor[order, report] {
	m.t.Helper()
	return enact(m.t, m.Host("router"), part{Router: &bgp.RouterConfig{AS: 65021, LocalAddress: netip.MustParseAddr("10.0.0.110"),
		Peers: []bgp.PeerConfig{signed("10.0.0.109")}}})
}

func single(addrs ...string) (all []netip.Prefix) {
	for _, text := range addrs {
		a := netip.MustParseAddr(text)
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

func signed(addr string) bgp.PeerConfig {
	return bgp.PeerConfig{Address: netip.MustParseAddr(addr), Password: interopPassword, BFD: true}
}

// hops are the next hops in the router's kernel.
func (m meeting) hops(prefix netip.Prefix) (all []string) {
	m.t.Helper()
	routes, err := m.Host("router").Routes(prefix)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, r := range routes {
		_, hops, _ := strings.Cut(r, ": ")
		for _, h := range strings.Fields(hops) {
			h, _, _ = strings.Cut(h, "*")
			all = append(all, h)
		}
	}
	slices.Sort(all)
	return all
}

// arrived waits until the router's kernel has everything that was advertised, and returns
// what arrived over IPv4 and over IPv6.
func (m meeting) arrived() (over4, over6 string) {
	m.t.Helper()
	var families [2][]string
	testkit.Eventually(m.t, time.Minute, func() error {
		families = [2][]string{}
		for _, f := range []struct {
			name   string
			prefix netip.Prefix
			hops   [2]string
		}{{"IPv4", prefix4, [2]string{"10.0.0.105", "10.0.0.106"}}, {"IPv6", prefix6, [2]string{"fd00::105", "fd00::106"}}} {
			for i, want := range f.hops {
				if slices.Contains(m.hops(f.prefix), want) {
					families[i] = append(families[i], f.name)
				}
			}
		}
		if len(families[0])+len(families[1]) < 4 {
			return fmt.Errorf("routes over IPv4 %v, over IPv6 %v; the kernel has %v and %v", families[0], families[1], m.hops(prefix4), m.hops(prefix6))
		}
		return nil
	})
	return strings.Join(families[0], ", "), strings.Join(families[1], ", ")
}

// bfd waits until BFD has the same state in the sessions with all these addresses.
func (m meeting) bfd(want string, peers func() []advertise.Peer, addrs ...string) string {
	m.t.Helper()
	testkit.Eventually(m.t, time.Minute, func() error {
		found := 0
		for _, p := range peers() {
			if slices.Contains(addrs, p.Address) && p.State == "established" && p.BFD == want {
				found++
			}
		}
		if found < len(addrs) {
			return fmt.Errorf("BFD with %v is not %s: %+v", addrs, want, peers())
		}
		return nil
	})
	return want
}

// without describes a session that is up, and whose BFD is not, because the other side
// has none.
func (m meeting) without(peers func() []advertise.Peer, who string, addrs ...string) string {
	m.t.Helper()
	time.Sleep(3 * time.Second) // BFD sends a packet every second
	m.bfd("down", peers, addrs...)
	return who + " has no BFD: the hold time applies"
}

// marks waits until a daemon shows all communities of a route.
func (m meeting) marks(d *Daemon, command string, want ...string) string {
	m.t.Helper()
	testkit.Eventually(m.t, time.Minute, func() error {
		text, err := d.Ask(command)
		for _, w := range want {
			if err == nil && !strings.Contains(text, w) {
				err = fmt.Errorf("no %q in %s", w, text)
			}
		}
		return err
	})
	return "standard, large, GRACEFUL_SHUTDOWN"
}

func (m meeting) routerMarks(d *Daemon, kind Kind) string {
	m.t.Helper()
	if kind == FRR {
		return m.marks(d, "show bgp ipv4 unicast "+drained.String(), "65000:1", "64999:1:2", "graceful-shutdown")
	}
	return m.marks(d, "show route all "+drained.String(), "(65000,1)", "(64999, 1, 2)", "(65535,0)")
}

// drains waits until our router avoids the draining load balancer.
func (m meeting) drains() string {
	m.t.Helper()
	testkit.Eventually(m.t, time.Minute, func() error {
		if hops := m.hops(drained); !slices.Equal(hops, []string{"10.0.0.105"}) {
			return fmt.Errorf("for %s the kernel has %v", drained, hops)
		}
		return nil
	})
	return "GRACEFUL_SHUTDOWN drains"
}

// cells are a row of the matrix.
type cells struct{ over4, over6, md5, bfd, communities string }

func (m meeting) direct(kind Kind, text string) (c cells) {
	d := m.daemon("router", kind, Config{Text: text})
	over4, over6 := signed("10.0.0.110"), signed("fd00::110")
	over4.AS, over6.AS, over4.TTLSecurity, over6.TTLSecurity = 65110, 65110, 1, 1
	all := m.speakers(over4, over6)
	c.over4, c.over6 = m.arrived()
	both := func() []advertise.Peer { return slices.Concat(all[0].peers(), all[1].peers()) }
	c.bfd = m.bfd("up", both, "10.0.0.110", "fd00::110")
	c.communities = m.routerMarks(d, kind)
	m.rejected(over4)
	c.md5 = "yes; another password is rejected"
	return c
}

func (m meeting) reflected(kind Kind, files map[string]string) (c cells) {
	balancers := bgp.NeighborGroup{Name: "balancers", Prefixes: single("10.0.0.105", "fd00::106"), Password: interopPassword, BFD: true}
	one, two := m.reflector("reflector", 109, balancers), m.reflector("second", 108, balancers)
	m.speakers(signed("10.0.0.109"), signed("fd00::108"))
	text := files["bgpd.conf"] + files["bird.conf"]
	d := m.daemon("router", kind, Config{Text: text, Files: files})
	c.over4, c.over6 = m.arrived()
	both := func() []advertise.Peer { return slices.Concat(one.Query().Peers, two.Query().Peers) }
	c.bfd = m.bfd("up", both, "10.0.0.110", "fd00::110")
	c.communities = m.routerMarks(d, kind)
	c.md5 = "yes"
	return c
}

func (m meeting) gobgp() (c cells) {
	d := m.daemon("reflector", GoBGP, Config{Text: guide(m.t, "interop", "gobgpd.toml")})
	m.router()
	all := m.speakers(signed("10.0.0.109"), signed("fd00::109"))
	c.over4, c.over6 = m.arrived()
	c.communities = m.marks(d, "global rib -a ipv4 "+drained.String(), "65000:1", "64999:1:2", "planned-shut") + "; " + m.drains()
	m.rejected(signed("10.0.0.109"))
	c.md5 = "yes; another password is rejected"
	both := func() []advertise.Peer { return slices.Concat(all[0].peers(), all[1].peers()) }
	c.bfd = m.without(both, "GoBGP 3", "10.0.0.109", "fd00::109")
	return c
}

// exabgp has our router behind our reflector, or BIRD.
func (m meeting) exabgp(theirs bool) (c cells) {
	r := m.reflector("reflector", 109, bgp.NeighborGroup{Name: "speakers", Prefixes: single("10.0.0.111", "fd00::111"), Password: interopPassword, BFD: true})
	communities := m.drains
	if theirs {
		d := m.daemon("router", BIRD, Config{Text: guide(m.t, "interop", "bird.conf")})
		communities = func() string { return m.routerMarks(d, BIRD) }
	} else {
		m.router()
	}
	m.daemon("speaker", ExaBGP, Config{Text: guide(m.t, "interop", "exabgp.conf")})
	c.over4, c.over6 = m.arrived()
	c.communities = communities()
	c.md5 = "yes"
	c.bfd = m.without(func() []advertise.Peer { return r.Query().Peers }, "ExaBGP", "10.0.0.111", "fd00::111")
	return c
}

// TestInterop connects Fairlead with other implementations, each with the configuration
// in the documentation, and compares the matrix in docs/interop.md with the results.
func TestInterop(t *testing.T) {
	frr, bird := guideText(t, FRR), guideText(t, BIRD)
	whole := true
	var table strings.Builder
	table.WriteString("| peer | role | routes over IPv4 | routes over IPv6 | MD5 | BFD | communities at the receiver |\n|---|---|---|---|---|---|---|\n")
	for _, row := range []struct {
		peer, is string
		run      func(meeting) cells
	}{
		{"FRR", "router, peering directly", func(m meeting) cells { return m.direct(FRR, frr) }},
		{"BIRD", "router, peering directly", func(m meeting) cells { return m.direct(BIRD, bird) }},
		{"FRR", "router behind our reflectors", func(m meeting) cells {
			return m.reflected(FRR, map[string]string{"bgpd.conf": guide(t, "interop", "frr.conf"), "bfdd.conf": guide(t, "router", "bfdd.conf")})
		}},
		{"BIRD", "router behind our reflectors", func(m meeting) cells {
			return m.reflected(BIRD, map[string]string{"bird.conf": guide(t, "interop", "bird.conf")})
		}},
		{"GoBGP", "reflector between our balancers and our router", meeting.gobgp},
		{"ExaBGP", "speaker, with our reflector and router", func(m meeting) cells { return m.exabgp(false) }},
		{"ExaBGP", "speaker, with our reflector and BIRD behind it", func(m meeting) cells { return m.exabgp(true) }},
	} {
		done := false
		t.Run(row.peer+" as "+row.is, func(t *testing.T) {
			c := row.run(meet(t))
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s | %s |\n", row.peer, row.is, c.over4, c.over6, c.md5, c.bfd, c.communities)
			done = true
		})
		whole = whole && done
	}
	if whole {
		compareMatrix(t, table.String())
	}
}

// compareMatrix compares the matrix in the page, or writes it there.
func compareMatrix(t *testing.T, table string) {
	t.Helper()
	const begin, end = "<!-- Generated by make test-interop ARGS=-update. -->\n\n", "\n<!-- End of the generated table. -->"
	page := guide(t, "interop.md")
	before, rest, found := strings.Cut(page, begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal("docs/interop.md has no markers for the matrix")
	}
	if *update {
		if err := os.WriteFile(filepath.Join("..", "..", "docs", "interop.md"), []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old != table {
		t.Errorf("docs/interop.md does not match the results; run make test-interop ARGS=-update:\n%s", table)
	}
}
