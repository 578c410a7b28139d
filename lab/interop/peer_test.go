package interop

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestPeerOptions checks that the peer sees the configured options.
func TestPeerOptions(t *testing.T) {
	for name, c := range map[string]struct {
		as     uint32
		change func(*bgp.PeerConfig)
		frr    string
		fails  string // reason why there is no session
	}{
		"TTL security": {as: 65110, change: func(p *bgp.PeerConfig) { p.TTLSecurity = 1 }, frr: " neighbor 10.0.0.105 ttl-security hops 1\n"},
		"TTL security of the peer alone": {as: 65110, change: func(p *bgp.PeerConfig) { p.EBGPMultihop, p.HoldTime = 64, 3*time.Second },
			frr: " neighbor 10.0.0.105 ttl-security hops 1\n", fails: "hold time"},
		"password": {as: 65110, change: func(p *bgp.PeerConfig) { p.Password = "secret" }, frr: " neighbor 10.0.0.105 password secret\n"},
		"wrong password": {as: 65110, change: func(p *bgp.PeerConfig) { p.Password = "wrong" },
			frr: " neighbor 10.0.0.105 password secret\n", fails: "or the TCP MD5 passwords differ"},
		"wrong AS": {as: 65110, change: func(p *bgp.PeerConfig) { p.AS = 65111 }, fails: "is in AS 65110, expected 65111"},
		"interface, source and timers": {as: 65110, change: func(p *bgp.PeerConfig) {
			p.SourceInterface, p.SourceAddress, p.HoldTime, p.Keepalive = "eth0", netip.MustParseAddr("10.0.0.105"), 30*time.Second, 7*time.Second
		}},
		"another interface": {as: 65110, change: func(p *bgp.PeerConfig) { p.SourceInterface = "eth9" }, fails: "source interface eth9: no such device"},
	} {
		t.Run(name, func(t *testing.T) {
			more := ""
			if c.frr != "" {
				more = fmt.Sprintf("router bgp %d\n%s", c.as, c.frr)
			}
			_, b := frrSession(t, c.as, c.change, more)
			if c.fails == "" {
				b.untilUp()
				return
			}
			testkit.Eventually(t, 30*time.Second, func() error {
				if p := b.peers()[0]; p.State == "established" || !strings.Contains(p.LastError, c.fails) {
					return fmt.Errorf("%s is %s: %q, want %q", p.Name, p.State, p.LastError, c.fails)
				}
				return nil
			})
		})
	}
}

// A peer with the router's own ID is rejected with a reason on our side.
func TestSameRouterID(t *testing.T) {
	l := segment(t)
	startText(t, l, FRR, fmt.Sprintf(frrText, 65021, 65021))
	b := startBalancer(t, l.Host("balancer"), bgp.SpeakerConfig{AS: 65021, RouterID: netip.MustParseAddr("10.0.0.110"),
		Peers: []bgp.PeerConfig{{Address: netip.MustParseAddr("10.0.0.110")}}})
	testkit.Eventually(t, 30*time.Second, func() error {
		if p := b.peers()[0]; !strings.Contains(p.LastError, "has the same router ID as this speaker: router IDs must differ") {
			return fmt.Errorf("%s: %q", p.State, p.LastError)
		}
		return nil
	})
}

// A lost peer is reported, and is recovered when it is back.
func TestPeerGoesAndComes(t *testing.T) {
	l := segment(t)
	text := fmt.Sprintf(birdText, 65110, 65021)
	d := startText(t, l, BIRD, text)
	b := startBalancer(t, l.Host("balancer"), bgp.SpeakerConfig{AS: 65021, LocalAddress: netip.MustParseAddr("10.0.0.105"),
		Peers: []bgp.PeerConfig{{Address: netip.MustParseAddr("10.0.0.110"), AS: 65110}}})
	b.set(marked(route.Attributes{})...)
	b.untilUp()
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		if p := b.peers()[0]; p.State == "established" || p.LastError == "" {
			return fmt.Errorf("%s: %q", p.State, p.LastError)
		}
		return nil
	})
	d = startText(t, l, BIRD, text)
	b.untilUp()
	testkit.Eventually(t, 30*time.Second, func() error {
		if text, err := d.Ask("show route " + prefix4.String()); err != nil || !strings.Contains(text, "via 10.0.0.105") {
			return fmt.Errorf("%v: %s", err, text)
		}
		return nil
	})
}

// linkLocal returns the link-local address of a host's eth0.
func linkLocal(t *testing.T, l *lab.Lab, host string) netip.Addr {
	t.Helper()
	var found netip.Addr
	testkit.Eventually(t, 30*time.Second, func() error {
		h := l.Host(host).Netlink()
		link, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		all, err := netlist.Whole(func() ([]netlink.Addr, error) { return h.AddrList(link, unix.AF_INET6) })
		for _, a := range all {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
				found = ip
				return nil
			}
		}
		return fmt.Errorf("no link-local address yet: %v", err)
	})
	return found
}

// A peer that is configured only by its link receives IPv4 prefixes over our link-local
// address (RFC 8950).
func TestUnnumbered(t *testing.T) {
	for kind, text := range map[Kind]string{
		FRR: `
router bgp 65110
 bgp router-id 10.0.0.110
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 neighbor BALANCER remote-as 65021
 neighbor BALANCER interface eth0
 neighbor BALANCER capability extended-nexthop
 neighbor BALANCER passive
 neighbor BALANCER bfd profile fairlead
 address-family ipv4 unicast
  neighbor BALANCER activate
 exit-address-family
 address-family ipv6 unicast
  neighbor BALANCER activate
 exit-address-family
`,
		BIRD: `
log stderr all;
router id 10.0.0.110;
protocol device { scan time 1; }
protocol kernel kernel_ipv4 { ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel kernel_ipv6 { ipv6 { import none; export where source = RTS_BGP; }; }
protocol bfd { interface "*" { interval 300 ms; multiplier 3; }; }
protocol bgp balancer {
	local as 65110;
	neighbor BALANCER%eth0 as 65021;
	passive on;
	bfd on;
	error wait time 1, 2;
	ipv4 { import all; export none; extended next hop on; };
	ipv6 { import all; export none; };
}
`,
	} {
		t.Run(string(kind), func(t *testing.T) {
			l := segment(t)
			router, balancer := linkLocal(t, l, "router"), linkLocal(t, l, "balancer")
			startConfig(t, l, kind, Config{Text: strings.ReplaceAll(text, "BALANCER", balancer.String()), BFD: true})
			b := startBalancer(t, l.Host("balancer"), bgp.SpeakerConfig{AS: 65021, RouterID: netip.MustParseAddr("10.0.0.105"),
				Peers: []bgp.PeerConfig{{Name: "tor", Address: router.WithZone("eth0"), AS: 65110, BFD: true}}})
			b.set(marked(everything)...)
			b.untilUp()
			untilBFD(t, b)
			await(t, "the router's kernel", fmt.Sprintf("10.1.1.1/32 via %s; fd00:1:1::1/128 via %s", balancer, balancer), func() (string, error) {
				return viaIPv6(l.Host("router").Netlink())
			})
		})
	}
}

func untilBFD(t *testing.T, b *balancer) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() error {
		if p := b.peers()[0]; p.BFD != "up" {
			return fmt.Errorf("BFD is %s", p.BFD)
		}
		return nil
	})
}

// viaIPv6 formats a namespace's routes to service addresses, with next hops of either
// family.
func viaIPv6(h *netlink.Handle) (string, error) {
	var lines []string
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rs, err := netlist.Whole(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return "", err
		}
		for _, r := range rs {
			if r.Dst == nil || !strings.HasPrefix(r.Dst.String(), "10.1.") && !strings.HasPrefix(r.Dst.String(), "fd00:1:") {
				continue
			}
			via := r.Gw.String()
			if v, ok := r.Via.(*netlink.Via); ok {
				via = v.Addr.String()
			}
			lines = append(lines, fmt.Sprintf("%s via %s", r.Dst, via))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "; "), nil
}

// guideText returns the configuration of a router in docs/bgp.md.
func guideText(t *testing.T, kind Kind) string {
	t.Helper()
	begins := map[Kind]string{FRR: "router bgp", BIRD: "log stderr all;\nrouter id"}[kind]
	_, text, found := strings.Cut(guide(t, "bgp.md"), "```text\n"+begins)
	text, _, ended := strings.Cut(text, "\n```\n")
	if !found || !ended {
		t.Fatalf("the page has no configuration that begins with %q", begins)
	}
	return begins + text + "\n"
}

// The router configurations in docs/bgp.md work unchanged.
func TestGuide(t *testing.T) {
	for _, kind := range []Kind{FRR, BIRD} {
		t.Run(string(kind), func(t *testing.T) {
			l := segment(t)
			startConfig(t, l, kind, Config{Text: guideText(t, kind), BFD: true})
			b := startBalancer(t, l.Host("balancer"), bgp.SpeakerConfig{AS: 65021, LocalAddress: netip.MustParseAddr("10.0.0.105"),
				Peers: []bgp.PeerConfig{{Name: "tor-1", Address: netip.MustParseAddr("10.0.0.110"), AS: 65110, Password: "sesame", TTLSecurity: 1, BFD: true}}})
			b.set(marked(route.Attributes{})...)
			b.untilUp()
			want := "10.1.1.1/32 via 10.0.0.105; fd00:1:1::1/128 via fd00::105"
			await(t, "the router's kernel", want, func() (string, error) { return viaIPv6(l.Host("router").Netlink()) })
			untilBFD(t, b)
		})
	}
}

// FRR divides flows by the weights of two load balancers, here on one host.
func TestWeightsAtFRR(t *testing.T) {
	l := segment(t)
	h := l.Host("balancer").Netlink()
	link, err := h.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	second, _ := netlink.ParseAddr("10.0.0.106/16")
	if err := h.AddrAdd(link, second); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(frrText, 65021, 65021)
	startText(t, l, FRR, strings.Replace(text, " address-family ipv4 unicast\n", ` neighbor 10.0.0.106 remote-as 65021
 neighbor 10.0.0.106 passive
 address-family ipv4 unicast
  neighbor 10.0.0.106 activate
  maximum-paths ibgp 16
`, 1))
	for n, weight := range map[int]uint32{105: 1, 106: 3} {
		local := netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n))
		b := startBalancer(t, l.Host("balancer"), bgp.SpeakerConfig{AS: 65021, LocalAddress: local, Peers: []bgp.PeerConfig{{Address: netip.MustParseAddr("10.0.0.110")}}})
		b.set(route.Route{Prefix: prefix4, NextHop: local, Attributes: route.Attributes{Weight: weight}})
	}
	await(t, "the router's kernel", "10.0.0.105 weighs 1/4; 10.0.0.106 weighs 3/4", func() (string, error) {
		rs, err := netlist.Whole(func() ([]netlink.Route, error) {
			return l.Host("router").Netlink().RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		var hops []string
		for _, r := range rs {
			all := 0
			for _, hop := range r.MultiPath {
				all += hop.Hops + 1
			}
			for _, hop := range r.MultiPath {
				hops = append(hops, fmt.Sprintf("%s weighs %d/4", hop.Gw, 4*(hop.Hops+1)/all))
			}
		}
		slices.Sort(hops)
		return strings.Join(hops, "; "), err
	})
}

// A peer of which only the link is configured is found there, and finds us.
func TestRouterIsFound(t *testing.T) {
	l := segment(t)
	const text = `
router bgp 65110
 bgp router-id 10.0.0.110
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 neighbor eth0 interface remote-as 65021
 address-family ipv4 unicast
  neighbor eth0 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor eth0 activate
 exit-address-family
`
	balancer := linkLocal(t, l, "balancer")
	b := startBalancer(t, l.Host("balancer"), bgp.SpeakerConfig{AS: 65021, RouterID: netip.MustParseAddr("10.0.0.105"),
		Peers: []bgp.PeerConfig{{Name: "tor", SourceInterface: "eth0", AS: 65110}}})
	b.set(marked(route.Attributes{})...)
	if p := b.peers()[0]; p.Name != "tor" || p.Address != "%eth0" || p.State != "idle" {
		t.Errorf("without a router: %+v", p)
	}
	startText(t, l, FRR, text)
	b.untilUp()
	if p := b.peers()[0]; p.Name != "tor" || !strings.HasSuffix(p.Address, "%eth0") || !strings.HasPrefix(p.Address, "fe80::") {
		t.Errorf("with a router: %+v", p)
	}
	want := fmt.Sprintf("10.1.1.1/32 via %s; fd00:1:1::1/128 via %s", balancer, balancer)
	await(t, "the router's kernel", want, func() (string, error) { return viaIPv6(l.Host("router").Netlink()) })
}
