package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
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

// balancer is a BGP speaker process in a host of a lab.
type balancer struct {
	*actor.Actor[order, report]
	t *testing.T
}

func startBalancer(t *testing.T, h *lab.Host, c bgp.SpeakerConfig) *balancer {
	t.Helper()
	return &balancer{enact(t, h, part{Speaker: &c}), t}
}

func (b *balancer) set(routes ...route.Route) {
	b.t.Helper()
	if r := b.Send(order{Routes: routes}); r.Error != "" {
		b.t.Fatal(r.Error)
	}
}

func (b *balancer) peers() []advertise.Peer { return b.Query().Peers }

func (b *balancer) untilUp() {
	b.t.Helper()
	testkit.Eventually(b.t, time.Minute, func() error {
		peers := b.peers()
		if len(peers) == 0 {
			return errors.New("no peers")
		}
		for _, p := range peers {
			if p.State != "established" {
				return fmt.Errorf("%s is %s: %s", p.Address, p.State, p.LastError)
			}
		}
		return nil
	})
}

// segment is a load balancer and a router on one link:
//
//	balancer 10.0.0.105 fd00::105 ── router 10.0.0.110 fd00::110
func segment(t *testing.T) *lab.Lab {
	t.Helper()
	return labtest.Build(t, lab.Topology{
		Hosts: []lab.HostSpec{{Name: "router"}, {Name: "balancer"}},
		Links: []lab.Link{{
			A: lab.At("router", "eth0", "10.0.0.110/16", "fd00::110/64"), B: lab.At("balancer", "eth0", "10.0.0.105/16", "fd00::105/64")}},
	})
}

// startText runs a router with its own configuration.
func startText(t *testing.T, l *lab.Lab, kind Kind, text string) *Daemon {
	t.Helper()
	return startConfig(t, l, kind, Config{Text: text})
}

func startConfig(t *testing.T, l *lab.Lab, kind Kind, c Config) *Daemon {
	t.Helper()
	if _, err := os.Stat(map[Kind]string{FRR: "/usr/lib/frr/bgpd", BIRD: "/usr/sbin/bird"}[kind]); err != nil {
		t.Skipf("%s is not installed", kind)
	}
	d, err := Start(l.Host("router").Namespace(), kind, c)
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

const frrText = `
router bgp %d
 bgp router-id 10.0.0.110
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 neighbor 10.0.0.105 remote-as %d
 neighbor 10.0.0.105 passive
 neighbor 10.0.0.105 timers 3 9
 address-family ipv4 unicast
  neighbor 10.0.0.105 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor 10.0.0.105 activate
 exit-address-family
`

const birdText = `
log stderr all;
router id 10.0.0.110;
protocol device { scan time 1; }
protocol direct { ipv4; ipv6; }
protocol bgp balancer {
	local 10.0.0.110 as %d;
	neighbor 10.0.0.105 as %d;
	passive on;
	error wait time 1, 2;
	ipv4 { import all; export none; };
	ipv6 { import all; export none; };
}
`

var (
	prefix4 = netip.MustParsePrefix("10.1.1.1/32")
	prefix6 = netip.MustParsePrefix("fd00:1:1::1/128")
)

func marked(a route.Attributes) []route.Route {
	return []route.Route{
		{Prefix: prefix4, NextHop: netip.MustParseAddr("10.0.0.105"), Attributes: a},
		{Prefix: prefix6, NextHop: netip.MustParseAddr("fd00::105"), Attributes: a},
	}
}

// frrPath is the relevant part of vtysh's output for a path.
type frrPath struct {
	AsPath            struct{ String string }
	Metric, LocPrf    *uint32
	Community         struct{ String string }
	LargeCommunity    struct{ String string }
	ExtendedCommunity struct{ String string }
	Nexthops          []struct{ IP string }
}

func (p frrPath) words() string {
	number := func(n *uint32) string {
		if n == nil {
			return "none"
		}
		return fmt.Sprint(*n)
	}
	var hops []string
	for _, h := range p.Nexthops {
		hops = append(hops, h.IP)
	}
	return fmt.Sprintf("via %s; path %s; MED %s; preference %s; communities %s, %s, %s", strings.Join(hops, " "), p.AsPath.String,
		number(p.Metric), number(p.LocPrf), p.Community.String, p.LargeCommunity.String, p.ExtendedCommunity.String)
}

// frrShows returns what FRR has for a prefix.
func frrShows(d *Daemon, prefix netip.Prefix) (string, error) {
	family := "ipv4"
	if prefix.Addr().Is6() {
		family = "ipv6"
	}
	text, err := d.Ask(fmt.Sprintf("show bgp %s unicast %s json", family, prefix))
	if err != nil {
		return "", err
	}
	var all struct{ Paths []frrPath }
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	if len(all.Paths) != 1 {
		return fmt.Sprintf("%d paths", len(all.Paths)), nil
	}
	return all.Paths[0].words(), nil
}

func await(t *testing.T, what, want string, show func() (string, error)) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() error {
		got, err := show()
		if err == nil && got != want {
			err = fmt.Errorf("%s:\n got %s\nwant %s", what, got, want)
		}
		return err
	})
}

// everything sets all attributes of a route.
var everything = route.Attributes{
	Communities: route.Communities("65000:1 graceful-shutdown no-export 65000:1:2"), LocalPreference: 200, MED: 50, ASPathPrepend: 2, Weight: 3,
}

func frrSession(t *testing.T, as uint32, change func(*bgp.PeerConfig), more string) (*Daemon, *balancer) {
	t.Helper()
	l := segment(t)
	d := startText(t, l, FRR, fmt.Sprintf(frrText, as, 65021)+more)
	p := bgp.PeerConfig{Name: "tor", Address: netip.MustParseAddr("10.0.0.110"), AS: as}
	change(&p)
	b := startBalancer(t, l.Host("balancer"), bgp.SpeakerConfig{
		AS: 65021, LocalAddress: netip.MustParseAddr("10.0.0.105"), Peers: []bgp.PeerConfig{p}})
	return d, b
}

// Each route has the intended attributes, within an AS and to another one, in one UPDATE.
func TestAttributesAtFRR(t *testing.T) {
	for name, c := range map[string]struct {
		as    uint32
		plain string
		full  string
	}{
		"iBGP": {65021, "path Local; MED none; preference 100; communities , , ",
			"path Local; MED 50; preference 200; communities 65000:1 graceful-shutdown no-export, 65000:1:2, " +
				"LB:65021:375000 (3.000 Mbps) LB:65021:375000 (3.000 Mbps)"},
		// FRR itself honors the community: it lowers the preference to 0.
		"eBGP": {65110, "path 65021; MED none; preference none; communities , , ",
			"path 65021 65021 65021; MED 50; preference 0; communities 65000:1 graceful-shutdown no-export, 65000:1:2, LB:65021:375000 (3.000 Mbps)"},
	} {
		t.Run(name, func(t *testing.T) {
			d, b := frrSession(t, c.as, func(*bgp.PeerConfig) {}, "")
			shown := func(attributes string) {
				t.Helper()
				await(t, "IPv4", "via 10.0.0.105; "+attributes, func() (string, error) { return frrShows(d, prefix4) })
				await(t, "IPv6", "via fd00::105; "+attributes, func() (string, error) { return frrShows(d, prefix6) })
			}
			b.set(marked(route.Attributes{})...)
			b.untilUp()
			shown(c.plain)
			// A route that arrives when the session is new may be sent twice.
			testkit.Eventually(t, time.Minute, func() error {
				b.set(marked(route.Attributes{})...)
				shown(c.plain)
				before := frrUpdates(t, d, "10.0.0.105")
				b.set(marked(everything)...)
				shown(c.full)
				if took := frrUpdates(t, d, "10.0.0.105") - before; took != 2 {
					return fmt.Errorf("other attributes of two prefixes took %d UPDATEs, want 2", took)
				}
				return nil
			})
			b.set(marked(route.Attributes{})...)
			shown(c.plain)
			elsewhere := route.Attributes{Peers: route.NamesOf("spine")}
			b.set(marked(elsewhere)...)
			await(t, "for another peer", "0 paths", func() (string, error) { return frrShows(d, prefix4) })
			elsewhere.Peers = route.NamesOf("spine", "tor")
			b.set(marked(elsewhere)...)
			shown(c.plain)
		})
	}
}

// frrUpdates is the number of UPDATEs received from a neighbor.
func frrUpdates(t *testing.T, d *Daemon, neighbor string) int {
	t.Helper()
	text, err := d.Ask("show bgp neighbors json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]struct{ MessageStats struct{ UpdatesRecv int } }
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return all[neighbor].MessageStats.UpdatesRecv
}

func TestAttributesAtBIRD(t *testing.T) {
	for name, c := range map[string]struct {
		as   uint32
		want []string
	}{
		"iBGP": {65021, []string{"BGP.as_path: \n", "BGP.med: 50", "BGP.local_pref: 200", "BGP.community: (65000,1) (65535,0) (65535,65281)",
			"BGP.ext_community: (unknown 0x4, 65021, 1219959552) (unknown 0x4004, 65021, 1219959552)", "BGP.large_community: (65000, 1, 2)"}},
		"eBGP": {65110, []string{"BGP.as_path: 65021 65021 65021\n", "BGP.med: 50", "BGP.local_pref: 100", "BGP.community: (65000,1) (65535,0) (65535,65281)",
			"BGP.ext_community: (unknown 0x4, 65021, 1219959552)\n", "BGP.large_community: (65000, 1, 2)\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := segment(t)
			d := startText(t, l, BIRD, fmt.Sprintf(birdText, c.as, 65021))
			b := startBalancer(t, l.Host("balancer"), bgp.SpeakerConfig{AS: 65021, LocalAddress: netip.MustParseAddr("10.0.0.105"),
				Peers: []bgp.PeerConfig{{Address: netip.MustParseAddr("10.0.0.110"), AS: c.as}}})
			b.set(marked(everything)...)
			b.untilUp()
			for prefix, hop := range map[netip.Prefix]string{prefix4: "BGP.next_hop: 10.0.0.105\n", prefix6: "BGP.next_hop: fd00::105\n"} {
				testkit.Eventually(t, 30*time.Second, func() error {
					text, err := d.Ask("show route all " + prefix.String())
					for _, want := range append(c.want, hop) {
						if err == nil && !strings.Contains(text+"\n", want) {
							err = fmt.Errorf("no %q in %s", want, text)
						}
					}
					return err
				})
			}
		})
	}
}
