package plan

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

var node = Node{Name: "lb1", NextHop4: netip.MustParseAddr("10.0.0.105")}

// web returns a Service with one frontend and backends 172.16.0.1 to n.
func web(name, vip string, n int, change ...func(*service.Service)) *service.Service {
	s := &service.Service{
		ID: service.ID{Namespace: "default", Name: name}, Method: service.Tunnel, Scheduler: service.Maglev,
		RingSize: service.DefaultRingSize, Health: service.DefaultHealthCheck, Panic: true,
		Frontends: []service.Frontend{{Key: service.Key{VIP: netip.MustParseAddr(vip), Port: 80, Protocol: service.TCP}}},
	}
	for i := range n {
		s.Frontends[0].Backends = append(s.Frontends[0].Backends,
			service.Backend{Addr: netip.MustParseAddrPort(fmt.Sprintf("172.16.0.%d:8080", i+1)), Weight: 1})
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func drain(i int) func(*service.Service) {
	return func(s *service.Service) { s.Frontends[0].Backends[i].Weight = 0 }
}

// build builds a plan. The i-th letter of states is the health of the backend with last
// byte i: u(p), d(own), g(one), ? (unknown), h (unknown, but programmed) or w (the same,
// with weight 0).
func build(states string, services ...*service.Service) *Plan {
	letter := func(a netip.AddrPort) byte { return states[a.Addr().As4()[3]-1] }
	return Build(Input{
		Services: services, Node: node,
		Health: func(t health.Target) health.State {
			return map[byte]health.State{'u': health.Up, 'd': health.Down, 'g': health.Removed}[letter(t.Addr)]
		},
		Held: func(k service.Key) map[netip.AddrPort]health.State {
			held := map[netip.AddrPort]health.State{}
			for _, s := range services {
				for _, f := range s.Frontends {
					for _, b := range f.Backends {
						if is := (map[byte]health.State{'h': health.Up, 'w': health.Down})[letter(b.Addr)]; f.Key == k && is != health.Unknown {
							held[b.Addr] = is
						}
					}
				}
			}
			return held
		},
	})
}

// want lists the backends to program, as "1 2=0 3": the last byte, and the weight if it
// is not 1.
func want(f Frontend) string {
	if f.Want == nil {
		return "none"
	}
	var words []string
	for _, b := range f.Want.Backends {
		w := fmt.Sprint(b.Addr.Addr().As4()[3])
		if b.Weight != 1 {
			w += fmt.Sprintf("=%d", b.Weight)
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

func TestHealthDecides(t *testing.T) {
	noPanic := func(s *service.Service) { s.Panic = false }
	udp := func(s *service.Service) { s.Frontends[0].Key.Protocol = service.UDP }
	for _, c := range []struct {
		name, states string
		service      *service.Service
		state        State
		want         string
	}{
		{"all up", "uuu", web("a", "10.1.1.1", 3), Active, "1 2 3"},
		{"one down", "udu", web("a", "10.1.1.1", 3), Active, "1 2=0 3"},
		{"one gone", "ugu", web("a", "10.1.1.1", 3), Active, "1 3"},
		{"UDP, one down", "udu", web("a", "10.1.1.1", 3, udp), Active, "1 3"},
		{"all down or gone: panic keeps all", "dgd", web("a", "10.1.1.1", 3), Panic, "1 2 3"},
		{"a restarted agent keeps what was down", "h?w", web("a", "10.1.1.1", 3), Active, "1 3=0"},
		{"all down: panic keeps all", "ddd", web("a", "10.1.1.1", 3), Panic, "1 2 3"},
		{"all down, panic off", "ddd", web("a", "10.1.1.1", 3, noPanic), NoHealthyBackend, "none"},
		{"no server", "", web("a", "10.1.1.1", 0), NoEndpoints, "none"},
		{"first probes not ended", "???", web("a", "10.1.1.1", 3), AwaitingHealth, "none"},
		{"one probe ended: no ring before all have", "?u?", web("a", "10.1.1.1", 3), AwaitingHealth, "none"},
		{"a new server waits for its first probe", "hu?", web("a", "10.1.1.1", 3), Active, "1 2"},
		{"some down, the rest not known yet: no panic", "d?d", web("a", "10.1.1.1", 3), AwaitingHealth, "none"},
		{"a restarted agent keeps what is held", "hh?", web("a", "10.1.1.1", 3), Active, "1 2"},
		{"a restarted agent keeps a draining server, of UDP too", "hw", web("a", "10.1.1.1", 2, udp, drain(1)), Active, "1 2=0"},
		{"a restarted agent keeps UDP's servers that drained before", "hw", web("a", "10.1.1.1", 2, udp), Active, "1 2=0"},
		{"a restarted agent whose servers all drain", "ww", web("a", "10.1.1.1", 2, noPanic, drain(0), drain(1)), Draining, "1=0 2=0"},
		{"draining", "uuu", web("a", "10.1.1.1", 3, drain(1)), Active, "1 2=0 3"},
		{"a draining server closes its port first", "udu", web("a", "10.1.1.1", 3, drain(1)), Active, "1 2=0 3"},
		{"a draining server is gone", "ugu", web("a", "10.1.1.1", 3, drain(1)), Active, "1 3"},
		{"all drain", "uu", web("a", "10.1.1.1", 2, drain(0), drain(1)), Draining, "1=0 2=0"},
		{"none but the draining one is up: panic", "ud", web("a", "10.1.1.1", 2, drain(0)), Panic, "1=0 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := build(c.states, c.service).Frontends[0]
			if f.State != c.state || want(f) != c.want {
				t.Errorf("got %s %q, want %s %q", f.State, want(f), c.state, c.want)
			}
			if (f.State == Active) != (f.Reason == "") {
				t.Errorf("state %s with reason %q", f.State, f.Reason)
			}
		})
	}
}

func TestOlderServiceKeepsItsVIP(t *testing.T) {
	older := web("z", "10.1.1.1", 1, func(s *service.Service) { s.Created = time.Unix(1, 0) })
	younger := web("a", "10.1.1.1", 1, func(s *service.Service) { s.Created = time.Unix(2, 0) })
	youngest := web("b", "10.1.1.1", 1, func(s *service.Service) { s.Created = time.Unix(3, 0) })
	p := build("u", younger, youngest, older)
	got := p.Frontends
	if got[0].Service != older || got[0].State != Active {
		t.Fatalf("%s has it in state %s", got[0].Service.ID, got[0].State)
	}
	for _, f := range got[1:] {
		if f.State != Conflict || f.Want != nil || !strings.Contains(f.Reason, "default/z already has TCP 10.1.1.1:80") {
			t.Errorf("%s: %s: %s", f.Service.ID, f.State, f.Reason)
		}
	}
	if len(p.Routes) != 1 || len(p.Routes[0].Frontends) != 1 {
		t.Errorf("routes %v", p.Routes)
	}
}

// TestNodesKeepTheirAddresses checks that no Service gets a node's address.
func TestNodesKeepTheirAddresses(t *testing.T) {
	p := Build(Input{
		Services: []*service.Service{web("a", "10.0.0.105", 1), web("b", "10.0.0.105", 1), web("c", "10.1.1.1", 1)}, Node: node,
		Health: func(health.Target) health.State { return health.Up },
		Nodes:  map[netip.Addr]string{netip.MustParseAddr("10.0.0.105"): "balancer lb1", netip.MustParseAddr("10.0.0.106"): "balancer lb2"},
	})
	for _, f := range p.Frontends {
		if taken := f.Key.VIP == netip.MustParseAddr("10.0.0.105"); taken != (f.State == Conflict) || taken != (f.Want == nil) ||
			taken && !strings.HasPrefix(f.Reason, "10.0.0.105 is the address of balancer lb1, whose own traffic would be lost: ") {
			t.Errorf("%s of %s: %s, %s", f.Key, f.Service.ID, f.State, f.Reason)
		}
	}
	if len(p.Routes) != 1 || p.Routes[0].Prefix.String() != "10.1.1.1/32" || len(p.Targets) != 1 {
		t.Errorf("routes %v, %d targets", p.Routes, len(p.Targets))
	}
}

// TestAddressesOfOtherKinds checks that addresses that are not assigned as load balancer
// IPs are served only where they are advertised, and rank below assigned ones.
func TestAddressesOfOtherKinds(t *testing.T) {
	of := func(name string, kind service.AddressKind, age int64) *service.Service {
		return web(name, "10.1.1.1", 1, func(s *service.Service) { s.Frontends[0].Kind, s.Created = kind, time.Unix(age, 0) })
	}
	all := []*service.Service{
		of("a-cluster", service.ClusterAddress, 1), of("b-external", service.ExternalAddress, 2), of("c-given", service.LoadBalancerAddress, 9),
	}
	for _, c := range []struct {
		services []*service.Service
		offered  string // names of the Services that are advertised
		want     string
	}{
		{all, "a-cluster b-external c-given", "c-given active, b-external conflict, a-cluster conflict"},
		{all[:2], "a-cluster b-external", "b-external active, a-cluster conflict"},
		{all[:2], "a-cluster", "a-cluster active, b-external not-advertised"},
		{all[:2], "", "a-cluster not-advertised, b-external not-advertised"},
		{all[2:], "", "c-given active"},
	} {
		p := Build(Input{
			Services: c.services, Node: node,
			Health: func(health.Target) health.State { return health.Up },
			Announce: func(s *service.Service, vip netip.Addr) ([]route.Offer, string) {
				if strings.Contains(c.offered, s.ID.Name) {
					return []route.Offer{{Prefix: netip.PrefixFrom(vip, 32)}}, ""
				}
				return nil, "no Advertisement is for it"
			},
		})
		var words []string
		for _, f := range p.Frontends {
			words = append(words, fmt.Sprint(f.Service.ID.Name, " ", f.State))
			if held := f.State == Active; held != (f.Want != nil) || f.State == NotAdvertised && f.Reason != "no Advertisement is for it" {
				t.Errorf("%s is %s, held %v: %s", f.Service.ID.Name, f.State, f.Want != nil, f.Reason)
			}
		}
		if got := strings.Join(words, ", "); got != c.want {
			t.Errorf("%q is offered: %s, want %s", c.offered, got, c.want)
		}
		if active := strings.Contains(c.want, "active"); active != (len(p.Targets) == 1) {
			t.Errorf("%q is offered: %d targets", c.offered, len(p.Targets))
		}
		if c.want == "b-external active, a-cluster conflict" && p.Frontends[1].Reason !=
			"Service default/b-external already has TCP 10.1.1.1:80 as its ExternalIP, which takes precedence over a ClusterIP: give one of the two another address or port" {
			t.Error(p.Frontends[1].Reason)
		}
	}
}

func TestRangesOverlap(t *testing.T) {
	ranged := func(age int64, first, last uint16, p service.Protocol) func(*service.Service) {
		return func(s *service.Service) {
			s.Created = time.Unix(age, 0)
			k := &s.Frontends[0].Key
			k.Port, k.Last, k.Protocol = first, last, p
		}
	}
	p := build("u", web("young", "10.1.1.1", 1, ranged(4, 8000, 8100, service.TCP)), web("old", "10.1.1.1", 1, ranged(1, 8050, 8999, service.TCP)),
		web("whole", "10.1.1.1", 1, ranged(3, 0, 65535, service.AnyProtocol)), web("udp", "10.1.1.1", 1, ranged(5, 8000, 8999, service.UDP)),
		web("other", "10.1.1.2", 1, ranged(6, 8000, 8999, service.TCP)), web("adjacent", "10.1.1.1", 1, ranged(7, 8000, 8049, service.TCP)))
	for _, f := range p.Frontends {
		if want := f.Service.ID.Name == "young"; want != (f.State == Conflict) || want == (f.Want != nil) {
			t.Errorf("%s %s: %s, %s", f.Service.ID.Name, f.Key, f.State, f.Reason)
		}
		if f.State == Conflict && f.Reason != "Service default/old already has TCP 10.1.1.1:8050-8999 and is older: give one of the two other ports" {
			t.Error(f.Reason)
		}
	}
}

// TestWantHasEverything checks that every setting of a Service reaches the data plane.
func TestWantHasEverything(t *testing.T) {
	s := web("all", "10.1.1.1", 1, func(s *service.Service) {
		s.Method, s.Encapsulation, s.Scheduler, s.RingSize = service.Tunnel, service.GUE, service.WeightedLeastConn, 251
		s.Survival, s.Affinity, s.Limits = service.FlowTable, time.Minute, service.Limits{Opens: 7}
		s.Allow, s.Deny = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
		b := &s.Frontends[0].Backends[0]
		b.MaxConns, b.Since = 9, time.Unix(1000, 0)
	})
	want := desired.Frontend{
		Key: s.Frontends[0].Key, Method: service.Tunnel, Encapsulation: service.GUE, Scheduler: service.WeightedLeastConn, RingSize: 251,
		Survival: service.FlowTable, Affinity: time.Minute, Limits: service.Limits{Opens: 7}, Allow: s.Allow, Deny: s.Deny,
		Backends: []service.Backend{{Addr: netip.MustParseAddrPort("172.16.0.1:8080"), Weight: 1, MaxConns: 9, Since: time.Unix(1000, 0)}},
	}
	if got := build("u", s).Frontends[0].Want; !reflect.DeepEqual(*got, want) || !got.Same(want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

func TestRoutes(t *testing.T) {
	prefix := func(s *service.Service) { s.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")} }
	p := build("ud", web("one", "10.1.1.1", 1), web("two", "10.1.2.1", 2, prefix), web("none", "10.1.3.1", 0),
		web("six", "2001:db8::1", 1))
	var got []string
	for _, r := range p.Routes {
		got = append(got, fmt.Sprint(r.Prefix, " via ", r.NextHop))
	}
	if want := []string{"10.1.1.1/32 via 10.0.0.105", "10.1.2.0/24 via 10.0.0.105"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(p.Refusals) != 1 || p.Refusals[0].Reason != "this node has no IPv6 next hop to advertise: set --next-hop" {
		t.Errorf("refusals %v", p.Refusals)
	}
}

// TestAnnounceDecides advertises one address by several prefixes, one for only one of the
// two Services that share it, and one not at all.
func TestAnnounceDecides(t *testing.T) {
	other := func(s *service.Service) { s.Frontends[0].Key.Port = 81 }
	services := []*service.Service{
		web("both", "10.1.1.1", 1), web("shared", "10.1.2.1", 1, other), web("sharing", "10.1.2.1", 1), web("not", "10.1.3.1", 1),
		web("none", "10.1.4.1", 0),
	}
	slices.SortFunc(services, func(a, b *service.Service) int { return a.ID.Compare(b.ID) })
	p := Build(Input{
		Services: services, Node: node,
		Health: func(health.Target) health.State { return health.Up },
		Announce: func(s *service.Service, vip netip.Addr) ([]route.Offer, string) {
			wide := route.Offer{Prefix: netip.MustParsePrefix("10.1.0.0/16")}
			switch s.ID.Name {
			case "both":
				return []route.Offer{wide, {Prefix: netip.MustParsePrefix("10.1.1.1/32")}}, ""
			case "sharing":
				return []route.Offer{wide}, ""
			}
			return nil, "not " + s.ID.Name + " " + vip.String()
		},
	})
	var got []string
	for _, r := range p.Routes {
		got = append(got, fmt.Sprint(r.Prefix, " ", r.Frontends))
	}
	for _, r := range p.Refusals {
		got = append(got, fmt.Sprint(r.Prefix, " ", r.Reason))
	}
	want := []string{"10.1.0.0/16 [TCP 10.1.1.1:80 TCP 10.1.2.1:80]", "10.1.1.1/32 [TCP 10.1.1.1:80]", "10.1.3.1/32 not not 10.1.3.1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRouteWaitsForAllItLeadsTo uses one prefix for several Services, some of which are
// not known yet.
func TestRouteWaitsForAllItLeadsTo(t *testing.T) {
	prefix := func(s *service.Service) { s.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")} }
	second := func(s *service.Service) { s.Frontends[0].Backends = s.Frontends[0].Backends[1:] }
	p := build("?u", web("known", "10.1.1.1", 2, prefix, second), web("waits", "10.1.1.2", 2, prefix), web("none", "10.1.1.3", 0, prefix))
	if len(p.Routes) != 1 || len(p.Routes[0].Frontends) != 2 {
		t.Errorf("routes %v, want one that leads to the first two", p.Routes)
	}
}

func TestTargetsAreProbedOnce(t *testing.T) {
	otherPort := func(s *service.Service) { s.Health.Port = 9090 }
	p := build("uu", web("one", "10.1.1.1", 2), web("two", "10.1.2.1", 2), web("three", "10.1.3.1", 1, otherPort))
	if len(p.Targets) != 3 {
		t.Fatalf("%d targets: %v", len(p.Targets), p.Targets)
	}
	if !slices.ContainsFunc(p.Targets, func(t health.Target) bool { return t.Addr.Port() == 9090 }) {
		t.Error("no probe of the port asked for")
	}
}

// TestChecksAskNoUDPPortByTCP: checks use TCP. If a Service has both protocols, they only
// apply to UDP backends on the same port.
func TestChecksAskNoUDPPortByTCP(t *testing.T) {
	udp := func(port uint16) func(*service.Service) {
		return func(s *service.Service) {
			f := service.Frontend{Key: s.Frontends[0].Key}
			f.Key.Protocol = service.UDP
			for _, b := range s.Frontends[0].Backends {
				b.Addr = netip.AddrPortFrom(b.Addr.Addr(), port)
				f.Backends = append(f.Backends, b)
			}
			s.Frontends = append(s.Frontends, f)
		}
	}
	alone := func(s *service.Service) { s.Frontends = s.Frontends[1:] }
	named := func(s *service.Service) { s.Health.Port = 9090 }
	for name, c := range map[string]struct {
		service *service.Service
		want    service.CheckKind
	}{
		"another port":               {web("a", "10.1.1.1", 1, udp(53)), service.CheckNone},
		"the same port":              {web("a", "10.1.1.1", 1, udp(8080)), service.CheckTCP},
		"a range, which has no port": {web("a", "10.1.1.1", 1, udp(0), alone), service.CheckNone},
		"a port to check":            {web("a", "10.1.1.1", 1, udp(53), named), service.CheckTCP},
		"nothing but UDP, and asked": {web("a", "10.1.1.1", 1, udp(53), alone), service.CheckTCP},
	} {
		for _, f := range build("u", c.service).Frontends {
			want := service.CheckTCP
			if f.Key.Protocol == service.UDP {
				want = c.want
			}
			if got := f.Backends[0].Target.Check.Kind; got != want {
				t.Errorf("%s: %s is checked by %s, want %s", name, f.Key, got, want)
			}
		}
	}
}

func TestADedicatedServiceIsLeftToItsOwnBalancers(t *testing.T) {
	shared := web("shared", "10.1.1.1", 2)
	own := web("own", "10.1.1.2", 2, func(s *service.Service) { s.Dedicated = true })
	for _, c := range []struct {
		only        service.ID
		here, there string
	}{
		{service.ID{}, "10.1.1.1", "served by dedicated load balancers, started with --dedicated-service default/own"},
		{own.ID, "10.1.1.2", "this load balancer is dedicated to Service default/own"},
		{shared.ID, "10.1.1.1", "this load balancer is dedicated to Service default/shared"},
	} {
		n := node
		n.Only = c.only
		p := Build(Input{
			Services: []*service.Service{own, shared}, Node: n, Health: func(health.Target) health.State { return health.Up },
		})
		for _, f := range p.Frontends {
			if here := f.Key.VIP.String() == c.here; here != (f.Want != nil) {
				t.Errorf("only %s: %s is %s (%s)", c.only, f.Key, f.State, f.Reason)
			} else if !here && (f.State != DedicatedElsewhere || !strings.Contains(f.Reason, c.there)) {
				t.Errorf("only %s: %s is %s: %s", c.only, f.Key, f.State, f.Reason)
			}
		}
		if len(p.Routes) != 1 || len(p.Targets) != 2 {
			t.Errorf("only %s: %d routes, %d targets; want those of one Service", c.only, len(p.Routes), len(p.Targets))
		}
	}
}

// TestClaims checks which of several Services keeps an address, independent of their
// order.
func TestClaims(t *testing.T) {
	dated := func(name string, unix int64) *service.Service {
		return web(name, "10.1.1.1", 1, func(s *service.Service) { s.Created = time.Unix(unix, 0) })
	}
	other := web("other", "10.1.1.1", 1, func(s *service.Service) { s.Frontends[0].Backends[0].Addr = netip.MustParseAddrPort("172.16.0.2:8080") })
	undated := func(name string) *service.Service { return web(name, "10.1.1.1", 1) }
	for _, c := range []struct {
		name     string
		services []*service.Service
		owner    string // as recorded
		held     string // backends in the kernel, by last byte
		want     string
		why      string
	}{
		{"the record, against name", []*service.Service{undated("a"), undated("b")}, "b", "", "b", "and was programmed first"},
		{"the record, against age", []*service.Service{dated("a", 1), dated("b", 2), undated("c")}, "b", "", "b", "and was programmed first"},
		{"the record, against date", []*service.Service{dated("a", 1), undated("b")}, "b", "", "b", "and was programmed first"},
		{"a record of who is no more", []*service.Service{undated("a"), undated("b")}, "c", "", "a", "and comes first by name, as neither has a creationTimestamp"},
		{"no record: the kernel's servers", []*service.Service{undated("a"), other}, "", "2", "other", "and was programmed first"},
		{"no record, servers of both", []*service.Service{undated("a"), other}, "", "12", "a", "and comes first by name, as neither has a creationTimestamp"},
		{"the record, against the kernel's servers", []*service.Service{undated("a"), other}, "a", "2", "a", "and was programmed first"},
		{"nothing runs: the older", []*service.Service{dated("a", 2), dated("b", 1)}, "", "", "b", "and is older"},
		{"nothing runs: the dated", []*service.Service{undated("a"), dated("b", 1577836800)}, "", "", "b", "and has a creationTimestamp, which this one has not"},
		{"nothing runs: the name", []*service.Service{undated("b"), undated("a")}, "", "", "a", "and comes first by name, as neither has a creationTimestamp"},
		{"nothing runs, equal age", []*service.Service{dated("b", 1), dated("a", 1)}, "", "", "a", "and comes first by name, as both are equally old"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 {
				slices.Reverse(c.services)
				p := Build(Input{
					Services: c.services, Node: node, Health: func(health.Target) health.State { return health.Up },
					Held: func(service.Key) map[netip.AddrPort]health.State {
						held := map[netip.AddrPort]health.State{}
						for _, s := range c.services {
							for _, b := range s.Frontends[0].Backends {
								if strings.Contains(c.held, fmt.Sprint(b.Addr.Addr().As4()[3])) {
									held[b.Addr] = health.Up
								}
							}
						}
						return held
					},
					Owner: func(service.Key) (service.ID, bool) {
						return service.ID{Namespace: "default", Name: c.owner}, c.owner != ""
					},
				})
				for i, f := range p.Frontends {
					switch won := i == 0; {
					case won && (f.Service.ID.Name != c.want || f.State != Active):
						t.Errorf("%s has it as %s: %s", f.Service.ID.Name, f.State, f.Reason)
					case !won && (f.State != Conflict || f.Want != nil || f.Reason != fmt.Sprintf(
						"Service default/%s already has TCP 10.1.1.1:80 %s: give one of the two another address or port", c.want, c.why)):
						t.Errorf("%s is %s: %s", f.Service.ID.Name, f.State, f.Reason)
					}
				}
			}
		})
	}
}

// TestUnchecked checks that backends without a health check are up immediately and are
// not probed.
func TestUnchecked(t *testing.T) {
	p := build("??", web("a", "10.1.1.1", 2, func(s *service.Service) { s.Health.Kind = service.CheckNone }))
	if f := p.Frontends[0]; f.State != Active || want(f) != "1 2" || len(p.Targets) > 0 {
		t.Errorf("%s, %s, targets %v", f.State, want(f), p.Targets)
	}
}
