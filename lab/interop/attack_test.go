package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/actor"
)

// patience is how long any step may take on a busy machine: speed is not under test.
const patience = 8 * time.Minute

// siege is a network in which an attacker has sessions with everything that FRR and BIRD
// have sessions with. All are in one AS, on one switch:
//
//	node-105 ── reflector 109 ── FRR 110, BIRD 111      routes of 105
//	node-106 ── FRR 110, BIRD 111, attacker 10.0.66.1   routes of 106
//	FRR 110, BIRD 111 ── router 112                     a route of each of them
//	attacker 10.0.66.0/24 ── reflector 109, router 112
//
// The hold time is 9 s for FRR and BIRD. The attacker, which must not give up early, has
// 90 s.
type siege struct {
	*lab.Lab
	t         *testing.T
	frr, bird *Daemon
	// victims are our processes under attack.
	victims map[string]*actor.Actor[order, report]
	// began is when sessions began, as reported by BIRD.
	began map[string]time.Time
}

const frrUnderSiege = `
router bgp 65021
 bgp router-id 10.0.0.110
 no bgp default ipv4-unicast
 no bgp network import-check
 neighbor ours peer-group
 neighbor ours remote-as 65021
 neighbor ours timers 3 9
 neighbor ours timers connect 1
 neighbor 10.0.0.106 peer-group ours
 neighbor 10.0.0.106 passive
 neighbor 10.0.0.109 peer-group ours
 neighbor 10.0.0.112 peer-group ours
 address-family ipv4 unicast
  network 10.1.110.0/24
  neighbor ours activate
 exit-address-family
 address-family ipv6 unicast
  network fd00:1:110::/64
  neighbor ours activate
 exit-address-family
`

const birdUnderSiege = `
log stderr all;
router id 10.0.0.111;
protocol device { scan time 1; }
protocol direct { ipv4; ipv6; }
protocol kernel kernel4 { ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel kernel6 { ipv6 { import none; export where source = RTS_BGP; }; }
protocol static { ipv4; route 10.1.111.0/24 blackhole; }
protocol static { ipv6; route fd00:1:111::/64 blackhole; }
template bgp ours {
	local 10.0.0.111 as 65021;
	hold time 9; keepalive time 3;
	connect delay time 1; connect retry time 1; error wait time 1, 2;
	ipv4 { import all; export where source = RTS_STATIC; add paths rx; };
	ipv6 { import all; export where source = RTS_STATIC; next hop address fd00::111; add paths rx; };
}
protocol bgp at_speaker from ours { neighbor 10.0.0.106 as 65021; passive on; }
protocol bgp at_reflector from ours { neighbor 10.0.0.109 as 65021; }
protocol bgp at_router from ours { neighbor 10.0.0.112 as 65021; }
`

func besiege(t *testing.T, limit uint32) *siege {
	t.Helper()
	top := lab.Topology{Switches: []lab.SwitchSpec{{Name: "switch"}}}
	for name, n := range map[string]int{"node-105": 105, "node-106": 106, "reflector": 109, "frr": 110, "bird": 111, "router": 112} {
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: name})
		top.Links = append(top.Links, lab.Link{A: lab.At(name, "eth0", fmt.Sprintf("10.0.0.%d/16", n), fmt.Sprintf("fd00::%d/64", n)), B: lab.Port("switch")})
	}
	addresses := []string{"fd00::66:1/64"}
	for n := 1; n < 128; n++ {
		addresses = append(addresses, nth(n).String()+"/16")
	}
	top.Hosts = append(top.Hosts, lab.HostSpec{Name: "attacker"})
	top.Links = append(top.Links, lab.Link{A: lab.At("attacker", "eth0", addresses...), B: lab.Port("switch")})
	s := &siege{Lab: labtest.Build(t, top), t: t, began: map[string]time.Time{}}
	s.frr, s.bird = s.daemon("frr", FRR, frrUnderSiege), s.daemon("bird", BIRD, birdUnderSiege)
	all := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}
	s.victims = map[string]*actor.Actor[order, report]{
		"reflector": enact(t, s.Host("reflector"), part{Reflector: &bgp.ReflectorConfig{AS: 65021, RouterID: netip.MustParseAddr("10.0.0.109"),
			Groups: []bgp.NeighborGroup{
				{Name: "clients", Prefixes: all, MaxPrefixes: limit, MaxPeers: bgp.DefaultMaxPeers, HoldTime: 90 * time.Second},
				{Name: "routers", Prefixes: single("10.0.0.110", "10.0.0.111"), SendMax: bgp.DefaultSendMax},
			}, MaxTotal: bgp.DefaultMaxTotal}}),
		"router": enact(t, s.Host("router"), part{Router: &bgp.RouterConfig{AS: 65021, RouterID: netip.MustParseAddr("10.0.0.112"),
			Groups:   []bgp.NeighborGroup{{Name: "balancers", Prefixes: all, MaxPrefixes: limit, MaxPeers: bgp.DefaultMaxPeers, HoldTime: 90 * time.Second}},
			MaxTotal: bgp.DefaultMaxRouterTotal}}),
	}
	s.speaker(105, "10.0.0.109")
	s.victims["speaker"] = s.speaker(106, "10.0.0.110", "10.0.0.111", nth(1).String())
	return s
}

func (s *siege) daemon(host string, kind Kind, text string) *Daemon {
	s.t.Helper()
	return start(s.t, s.Host(host), kind, Config{Text: text})
}

func (s *siege) speaker(n int, peers ...string) *actor.Actor[order, report] {
	s.t.Helper()
	c := bgp.SpeakerConfig{AS: 65021, LocalAddress: netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n))}
	for _, p := range peers {
		c.Peers = append(c.Peers, bgp.PeerConfig{Address: netip.MustParseAddr(p)})
	}
	a := enact(s.t, s.Host(fmt.Sprintf("node-%d", n)), part{Speaker: &c})
	routes := []route.Route{
		{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", n)), NextHop: c.LocalAddress},
		{Prefix: netip.MustParsePrefix(fmt.Sprintf("fd00:1:%d::/64", n)), NextHop: netip.MustParseAddr(fmt.Sprintf("fd00::%d", n))}}
	if r := a.Send(order{Routes: routes}); r.Error != "" {
		s.t.Fatal(r.Error)
	}
	return a
}

// goodRoutes are exactly the routes that each router's kernel must have.
var goodRoutes = map[string][2]int{"frr": {105, 106}, "bird": {105, 106}, "router": {110, 111}}

// routes returns the BGP routes in a host's kernel: the good ones, and the number of
// others.
func (s *siege) routes(host string) string {
	var good []string
	others := 0
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		all, err := netlist.Whole(func() ([]netlink.Route, error) {
			return s.Host(host).Netlink().RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return err.Error()
		}
		for _, r := range all {
			if r.Protocol == unix.RTPROT_KERNEL || r.Dst == nil {
				continue
			}
			if text := r.Dst.String(); strings.HasPrefix(text, "10.1.") || strings.HasPrefix(text, "fd00:1:") {
				good = append(good, text)
			} else {
				others++
			}
		}
	}
	slices.Sort(good)
	return fmt.Sprintf("%s and %d others", strings.Join(good, " "), others)
}

func wantRoutes(host string) string {
	var all []string
	for _, n := range goodRoutes[host] {
		all = append(all, fmt.Sprintf("10.1.%d.0/24", n), fmt.Sprintf("fd00:1:%d::/64", n))
	}
	slices.Sort(all)
	return strings.Join(all, " ") + " and 0 others"
}

// settle waits until every router has exactly the good routes.
func (s *siege) settle() {
	s.t.Helper()
	for host := range goodRoutes {
		testkit.Eventually(s.t, patience, func() error {
			if got := s.routes(host); got != wantRoutes(host) {
				return fmt.Errorf("%s: the kernel has %s, want %s", host, got, wantRoutes(host))
			}
			return nil
		})
	}
}

// sessions returns the start times of FRR's and BIRD's sessions, which must not change.
func (s *siege) sessions() string {
	s.t.Helper()
	var all []string
	text, err := s.frr.Ask("show bgp neighbors json")
	if err != nil {
		s.t.Fatal(err)
	}
	var frr map[string]struct {
		BgpState               string
		ConnectionsEstablished int
	}
	if err := json.Unmarshal([]byte(text), &frr); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	for name, n := range frr {
		all = append(all, fmt.Sprintf("FRR %s %s, the session of number %d", name, n.BgpState, n.ConnectionsEstablished))
	}
	text, err = s.bird.Ask("show protocols")
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 4 && f[1] == "BGP" {
			all = append(all, "BIRD "+strings.Join(f, " "))
			if since, err := time.Parse("15:04:05", f[4]); err == nil {
				f[4] = s.since(f[0], since)
				all[len(all)-1] = "BIRD " + strings.Join(f, " ")
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// since formats the start time of a BIRD session. It returns the first reported value if
// the new one is nearly the same, because BIRD computes it from its own clock each time.
// A session that ended takes at least a second to start again.
func (s *siege) since(protocol string, at time.Time) string {
	if before, known := s.began[protocol]; !known || at.Sub(before).Abs() > 500*time.Millisecond {
		s.began[protocol] = at
	}
	return s.began[protocol].Format("15:04:05.000")
}

// untilUp waits until all six sessions of FRR and BIRD are up.
func (s *siege) untilUp() {
	s.t.Helper()
	testkit.Eventually(s.t, time.Minute, func() error {
		if text := s.sessions(); strings.Count(text, "Established") != 6 {
			return errors.New(text)
		}
		return nil
	})
}

// watch repeatedly looks up the good addresses in each router's kernel until it is
// stopped, and counts lookups without a route or with a wrong one.
func (s *siege) watch() (stop func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	for host, good := range goodRoutes {
		all.Go(func() {
			wrong, looked := map[string]int{}, 0
			defer func() {
				s.t.Logf("%s: looked up %d times", host, looked)
				if len(wrong) > 0 || looked == 0 {
					s.t.Errorf("%s: during the attacks routes were wrong: %v", host, wrong)
				}
			}()
			for {
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
				}
				looked++
				for _, n := range good {
					for to, via := range map[string]string{
						fmt.Sprintf("10.1.%d.1", n): fmt.Sprintf("10.0.0.%d", n), fmt.Sprintf("fd00:1:%d::1", n): fmt.Sprintf("fd00::%d", n)} {
						if got := s.via(host, to); got != via {
							wrong[to+" via "+got]++
						}
					}
				}
			}
		})
	}
	return func() { close(done); all.Wait() }
}

// via is the gateway of a host's kernel for an address.
func (s *siege) via(host, to string) string {
	rs, err := s.Host(host).Netlink().RouteGet(net.ParseIP(to))
	if err != nil || len(rs) != 1 {
		return fmt.Sprint("nothing: ", err)
	}
	return rs[0].Gw.String()
}

// accepted waits until a victim has this number of paths at the same time, and then
// reports that this is enough.
func (s *siege) accepted(victim string, want int, enough chan<- struct{}) {
	defer close(enough)
	most := 0
	for began := time.Now(); time.Since(began) < patience; {
		asked, n := time.Now(), 0
		for _, p := range s.victims[victim].Query().Peers {
			n += int(p.Received)
		}
		if most = max(most, n); most >= want {
			s.t.Logf("%s has %d paths", victim, most)
			return
		}
		time.Sleep(max(100*time.Millisecond, 10*time.Since(asked))) // counting them delays the victim
	}
	s.t.Errorf("%s had %d paths at once, want %d: the attack was too weak", victim, most, want)
}

// usage returns the resource usage of all victims.
func (s *siege) usage() map[string]usage {
	all := map[string]usage{}
	for name, v := range s.victims {
		all[name] = v.Send(order{Usage: true}).Usage
	}
	return all
}

// over checks that nothing is left of the attacks.
func (s *siege) over(sessions string, before map[string]usage) {
	s.t.Helper()
	s.settle()
	if now := s.sessions(); now != sessions {
		s.t.Errorf("the sessions were\n%s\nand are\n%s", sessions, now)
	}
	testkit.Eventually(s.t, patience, func() error {
		for name, now := range s.usage() {
			was := before[name]
			if now.Goroutines > was.Goroutines+10 || now.Files > was.Files+5 || now.Heap > was.Heap+16<<20 {
				return fmt.Errorf("%s: before the attacks %+v, after them %+v", name, was, now)
			}
		}
		return nil
	})
	for name, now := range s.usage() {
		s.t.Logf("%s: %+v, before the attacks %+v", name, now, before[name])
	}
}

// scale is the size of the attack: prefixes of each family from each of several
// attackers, and from one that sends more than the limit for a load balancer.
type scale struct {
	rounds, flapping, attackers, prefixes, churn, tooMany int
	limit                                                 uint32
}

// TestAttacksNextToFRRAndBIRD has peers misbehave in every way, toward each role: the
// sessions of FRR and BIRD stay up, their routes and those that they provide stay correct
// all the time, and no role retains anything of it. The first round lets maps and buffers
// reach the size that the limits allow: a leak would grow further.
func TestAttacksNextToFRRAndBIRD(t *testing.T) {
	by := scale{rounds: 1, flapping: 50, attackers: 2, prefixes: 2000, churn: 1, tooMany: 10_000, limit: 4096}
	if os.Getenv("FAIRLEAD_BGP_ATTACK") != "" {
		by = scale{rounds: 2, flapping: 500, attackers: 4, prefixes: 30_000, churn: 1, tooMany: 300_000, limit: bgp.DefaultMaxPrefixes}
	}
	s := besiege(t, by.limit)
	s.untilUp()
	s.settle()
	sessions := s.sessions()
	stop := s.watch()
	bait := startLure(t, s.Host("attacker").Namespace(), by.prefixes)
	s.attack(by)
	s.settle()
	before := s.usage()
	for range by.rounds {
		s.attack(by)
	}
	testkit.Eventually(t, patience, func() error { // the first attack is the flood
		if n := bait.sessions.Load(); n < 4 {
			return fmt.Errorf("the speaker had %d sessions with the attacker", n)
		}
		return nil
	})
	bait.stop()
	stop()
	s.over(sessions, before)
}

// attack attacks reflector and router in every way.
func (s *siege) attack(by scale) {
	s.t.Helper()
	for victim, to := range map[string]string{"reflector": "10.0.0.109:179", "router": "10.0.0.112:179"} {
		a := &attacker{t: s.t, ns: s.Host("attacker").Namespace(), target: netip.MustParseAddrPort(to)}
		for what, attack := range map[string]func(){
			"malformed": a.malformed, "oversized": a.oversized, "flapping": func() { a.flap(by.flapping) },
			"slow and flooding": func() {
				a.slow(func() {
					enough := make(chan struct{})
					go s.accepted(victim, 2*by.attackers*by.prefixes, enough)
					a.flood(by, enough)
					<-enough
					for _, p := range s.victims[victim].Query().Peers {
						if p.LastError != "" && strings.HasPrefix(p.Address, "10.0.66.10") {
							s.t.Logf("%s of %s: %s", victim, p.Address, p.LastError)
						}
					}
				})
			},
		} {
			began := time.Now()
			attack()
			s.t.Logf("%s towards %s: %s", what, victim, time.Since(began).Round(time.Millisecond))
		}
	}
	if p := s.victims["speaker"].Query().Peers; slices.ContainsFunc(p, func(p advertise.Peer) bool { return p.Received > 0 }) {
		s.t.Errorf("the speaker accepted routes: %+v", p)
	}
}
