package status

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/reconciler/probe"
)

// peers is an announcer with one established session.
type peers struct{}

func (peers) Set([]route.Route) error             { return nil }
func (peers) Close() error                        { return nil }
func (peers) Withdrawing() []advertise.Withdrawal { return nil }
func (peers) Peers() []advertise.Peer {
	return []advertise.Peer{{Name: "tor-1", Address: "172.16.9.2", AS: 65021, State: "established"}}
}

func named(name, vip string, age time.Duration, servers ...string) *service.Service {
	s := &service.Service{
		ID: service.ID{Namespace: "default", Name: name}, Created: eleven.Add(-age), Method: service.Tunnel,
		Scheduler: service.Maglev, RingSize: 13, Health: service.DefaultHealthCheck, Panic: true, Origin: name + ".yaml:1",
		Frontends: []service.Frontend{{Key: service.Key{VIP: netip.MustParseAddr(vip), Port: 80, Protocol: service.TCP}}},
	}
	for _, a := range servers {
		s.Frontends[0].Backends = append(s.Frontends[0].Backends, service.Backend{Addr: netip.MustParseAddrPort(a), Weight: 1})
	}
	return s
}

// scene is an agent with one Service for every outcome.
func scene(t *testing.T) Agent {
	services := []*service.Service{
		named("double", "10.1.1.1", time.Hour, "172.16.5.1:80"),
		named("empty", "10.1.1.2", time.Hour),
		named("late", "10.1.1.3", time.Hour, "172.16.3.1:80"),
		named("odd", "10.1.1.4", time.Hour, "172.16.4.1:80"),
		named("six", "2001:db8::1", time.Hour, "[2001:db8:1::1]:80"),
		named("web", "10.1.1.1", 2*time.Hour, "172.16.1.1:80", "172.16.1.2:80"),
	}
	p := plan.Build(plan.Input{
		Services: services, Node: plan.Node{Name: "node1", NextHop4: netip.MustParseAddr("10.0.0.105")},
		Health: func(t health.Target) health.State {
			if t.Addr.String() == "172.16.1.2:80" {
				return health.Down
			}
			return health.Up
		},
	})
	dp, held := fake.New(), map[service.Key]desired.Frontend{}
	web, six := services[5].Frontends[0].Key, services[4].Frontends[0].Key
	for _, f := range p.Frontends {
		if f.Want != nil && (f.Key == web || f.Key == six) {
			if err := dp.Upsert(*f.Want); err != nil {
				t.Fatal(err)
			}
			held[f.Key] = *f.Want
		}
	}
	flow := schedule.Flow{Client: netip.MustParseAddrPort("192.168.0.2:1234"), Key: web}
	if _, err := dp.Forward(flow, true, 60); err != nil {
		t.Fatal(err)
	}
	late, odd := services[2].Frontends[0].Key, services[3].Frontends[0].Key
	view := &reconciler.View{
		Plan: p, Loaded: true,
		Problems: []problem.Problem{{Object: "Service default/bad", Message: "no"}},
		Held:     held,
		Refused:  map[service.Key]string{odd: "scheduler lc: not supported by this data plane"},
		Announced: map[route.Route]time.Time{
			{Prefix: netip.MustParsePrefix("10.1.1.1/32"), NextHop: netip.MustParseAddr("10.0.0.105")}: ago(90 * time.Second),
		},
		Failures: map[string]error{late.String(): errors.New("no space left in map")},
	}
	return Agent{
		Version: "v1", Kernel: "Linux 6.1", Node: "node1", Role: "balancer", Started: eleven,
		View: func() *reconciler.View { return view }, DataPlane: dp, Announcer: peers{},
		Probed: func(t health.Target) probe.Result {
			if t.Addr.String() == "172.16.1.2:80" {
				return probe.Result{Since: ago(time.Minute), Error: "connection refused", WasUp: true}
			}
			return probe.Result{Since: ago(time.Hour), WasUp: true}
		},
	}
}

func TestEveryFateHasItsStateAndReason(t *testing.T) {
	s := scene(t).Gather(eleven)
	for id, want := range map[string]struct {
		state  plan.State
		reason string
	}{
		"default/web": {plan.Active, ""}, "default/double": {plan.Conflict, "default/web already has"},
		"default/empty": {plan.NoEndpoints, "EndpointSlice"}, "default/late": {Pending, "no space left in map"},
		"default/odd": {Rejected, "scheduler lc"}, "default/six": {plan.Active, ""},
	} {
		one, err := s.Only(id)
		if err != nil {
			t.Fatal(err)
		}
		f := one.Services[0].Frontends[0]
		if f.State != want.state || !strings.Contains(f.Reason, want.reason) || (want.reason == "") != (f.Reason == "") {
			t.Errorf("%s: %s %q, want %s %q", id, f.State, f.Reason, want.state, want.reason)
		}
	}
}

// TestGathersNode gathers everything but Services and routes.
func TestGathersNode(t *testing.T) {
	texts := func(s Status) (all []string) {
		for _, p := range s.Problems {
			all = append(all, p.String())
		}
		slices.Sort(all)
		return all
	}
	whole, node := scene(t).Gather(eleven), scene(t).GatherOnly(eleven, selection.Selection{Node: true, Problems: true})
	if len(node.Services)+len(node.Routes) > 0 || len(node.Peers) != len(whole.Peers) || node.DataPlane == nil {
		t.Errorf("%+v", node)
	}
	if diff := cmp.Diff(texts(whole), texts(node)); diff != "" {
		t.Errorf("problems, -all +node:\n%s", diff)
	}
}

func TestEveryRouteHasItsReason(t *testing.T) {
	got := map[string]Route{}
	for _, r := range scene(t).Gather(eleven).Routes {
		got[r.Prefix.String()] = r
	}
	if r := got["10.1.1.1/32"]; !r.Advertised || r.Reason != "" || !r.Since.Equal(ago(90*time.Second)) {
		t.Errorf("the announced route: %+v", r)
	}
	for prefix, reason := range map[string]string{
		"10.1.1.3/32": "not yet programmed into the data plane", "10.1.1.4/32": "is rejected: scheduler lc", "2001:db8::1/128": "no IPv6 next hop",
	} {
		if r := got[prefix]; r.Advertised || !strings.Contains(r.Reason, reason) {
			t.Errorf("%s: %+v, want the reason %q", prefix, r, reason)
		}
	}
	if len(got) != 4 {
		t.Errorf("routes %v, want 4", got)
	}
}

func TestBackendsReportHealthServiceAndTraffic(t *testing.T) {
	s, err := scene(t).Gather(eleven).Only("web")
	if err != nil {
		t.Fatal(err)
	}
	f := s.Services[0].Frontends[0]
	up, down := f.Backends[0], f.Backends[1]
	if up.Health != "up" || !up.InService || !up.Since.Equal(ago(time.Hour)) {
		t.Errorf("up: %+v", up)
	}
	if down.Health != "down" || !down.Draining || down.LastError != "connection refused" {
		t.Errorf("down: %+v", down)
	}
	one := dataplane.Counts{Packets: 1, Bytes: 60, Flows: 1}
	if f.Counts != one || up.Counts != one || down.Counts != (dataplane.Counts{}) {
		t.Errorf("counts %+v, %+v, %+v", f.Counts, up.Counts, down.Counts)
	}
	double, err := scene(t).Gather(eleven).Only("double")
	if err != nil {
		t.Fatal(err)
	}
	if f := double.Services[0].Frontends[0]; f.Counts != (dataplane.Counts{}) || f.Backends[0].InService {
		t.Errorf("who lost the conflict shows the winner's traffic: %+v", f)
	}
}

// A backend that fails drains its connections. One that was never up has none, and always
// counts as down.
func TestNeverUp(t *testing.T) {
	a := scene(t)
	for _, wasUp := range []bool{true, false} {
		a.Probed = func(health.Target) probe.Result { return probe.Result{Error: "connection refused", WasUp: wasUp} }
		s, err := a.Gather(eleven).Only("web")
		if err != nil {
			t.Fatal(err)
		}
		b := s.Services[0].Frontends[0].Backends[1]
		if want := map[bool]string{true: "draining", false: "excluded"}[wasUp]; b.State() != want || b.Draining != wasUp || b.Health != "down" {
			t.Errorf("up before: %v: %s, want %s: %+v", wasUp, b.State(), want, b)
		}
		if text := tableOf(t, s.Overview()); !strings.Contains(text, "backends    1 down, 1 up\n") {
			t.Errorf("up before: %v:\n%s", wasUp, text)
		}
	}
}

func TestProblemsReportInputAndFailures(t *testing.T) {
	s := scene(t).Gather(eleven)
	if len(s.Problems) != 3 || s.Problems[0].Object != "Service default/bad" || s.Problems[2].Object != "TCP 10.1.1.3:80" ||
		s.Problems[1].String() != "double.yaml:1: Service default/double: Service default/web already has TCP 10.1.1.1:80 (web.yaml:1) and is older: give one of the two another address or port" {
		t.Errorf("problems %v", s.Problems)
	}
	a := scene(t)
	a.DataPlane = brokenCounters{a.DataPlane}
	if s := a.Gather(eleven); !strings.Contains(s.Problems[1].Message, "counters unreadable") {
		t.Errorf("problems %v do not mention the counters", s.Problems)
	}
}

type brokenCounters struct{ dataplane.DataPlane }

func (brokenCounters) Counters() ([]dataplane.FrontendCounters, error) {
	return nil, errors.New("counters unreadable")
}

func TestWithoutPeersNothingIsAnnounced(t *testing.T) {
	a := scene(t)
	a.Announcer = nil
	s := a.Gather(eleven)
	if r := s.Routes[0]; r.Advertised || !strings.Contains(r.Reason, "advertises no routes") || len(s.Peers) != 0 {
		t.Errorf("route %+v, peers %v", r, s.Peers)
	}
}

// A route for peers that this node does not have is not advertised.
func TestARouteForNoPeerIsNotAnnounced(t *testing.T) {
	for names, want := range map[route.Names]string{
		"tor-1": "", "tor-1 tor-9": "", "tor-8 tor-9": "no peer receives it: this node has no BGP peer named tor-8 or tor-9",
	} {
		a := scene(t)
		view := *a.View()
		p := *view.Plan
		view.Announced = map[route.Route]time.Time{}
		p.Routes = slices.Clone(p.Routes)
		p.Routes[0].Peers = names
		view.Plan, view.Announced[p.Routes[0].Route] = &p, eleven
		a.View = func() *reconciler.View { return &view }
		if r := a.Gather(eleven).Routes[0]; r.Reason != want || r.Advertised != (want == "") {
			t.Errorf("for %s: announced %v, %q", names, r.Advertised, r.Reason)
		}
	}
}

// TestServiceReportsWhatIsProgrammed checks that the status shows what is programmed, not
// what is desired.
func TestServiceReportsWhatIsProgrammed(t *testing.T) {
	a := scene(t)
	view := *a.View()
	web := service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP}
	held := view.Held[web]
	for weight, c := range map[uint32]struct {
		held     []service.Backend
		in       bool
		weight   uint32
		draining bool
	}{
		0: {[]service.Backend{{Weight: 3}}, true, 3, false}, // to be drained, but not yet written
		1: {[]service.Backend{{Weight: 0}}, true, 0, true},
		2: {nil, false, 0, false},
	} {
		for i := range c.held {
			c.held[i].Addr = netip.MustParseAddrPort("172.16.1.1:80")
		}
		held.Backends = c.held
		view.Held = map[service.Key]desired.Frontend{web: held}
		for i := range view.Plan.Frontends {
			if f := &view.Plan.Frontends[i]; f.Key == web {
				f.Backends[0].Weight = weight
			}
		}
		a.View = func() *reconciler.View { return &view }
		one, err := a.Gather(eleven).Only("web")
		if err != nil {
			t.Fatal(err)
		}
		b := one.Services[0].Frontends[0].Backends[0]
		if b.Weight != weight || b.InService != c.in || b.ProgrammedWeight != c.weight || b.Draining != c.draining {
			t.Errorf("desired weight %d, programmed %v: %+v", weight, c.held, b)
		}
	}
}

// serverScene is a node with only a DSR agent.
func serverScene(t *testing.T) Agent {
	a := scene(t)
	a.DataPlane, a.Announcer, a.Probed = nil, nil, nil
	view := *scene(t).View()
	view.Held, view.Announced, view.Refused, view.Failures = nil, nil, nil, nil
	a.View = func() *reconciler.View { return &view }
	web := service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP}
	a.DSRAgent = func() (dsr.State, error) {
		return dsr.State{
			Attached: []string{"veth1: tcx: servers behind it"},
			Abroad: map[netip.Addr]string{
				netip.MustParseAddr("172.16.1.2"): "routed through eth0 to another node",
				netip.MustParseAddr("172.16.3.1"): "no route leads to it",
			},
			Entries: []dsr.Entry{{Key: web, Method: service.Tunnel, Server: netip.MustParseAddrPort("172.16.1.1:80")}},
			Flows: []dataplane.Flow{
				{VIP: netip.MustParseAddrPort("10.1.1.1:80"), Server: netip.MustParseAddrPort("172.16.1.1:80"), Protocol: service.TCP},
				{VIP: netip.MustParseAddrPort("10.1.9.9:80"), Server: netip.MustParseAddrPort("172.16.1.1:80"), Protocol: service.TCP},
			},
			Counters: map[string]uint64{"tunnel-delivered": 7, "passed-fragment": 0},
		}, nil
	}
	return a
}

func TestDSRAgentReportsItsServices(t *testing.T) {
	s := serverScene(t).Gather(eleven)
	if s.DataPlane != nil || len(s.Peers) != 0 || len(s.Routes) != 0 {
		t.Errorf("data plane %v, peers %v, routes %v; want none", s.DataPlane, s.Peers, s.Routes)
	}
	if h := s.DSRAgent; h == nil || h.Flows != 2 || len(h.Entries) != 1 || h.Entries[0].Flows != 1 {
		t.Fatalf("DSR agent %+v", h)
	}
	for id, want := range map[string]struct {
		state  plan.State
		reason string
	}{
		"default/web": {plan.Active, ""}, "default/late": {Idle, "none of its backends is on this node"},
		"default/double": {plan.Conflict, "already has"}, "default/empty": {plan.NoEndpoints, "EndpointSlice"},
	} {
		one, err := s.Only(id)
		if err != nil {
			t.Fatal(err)
		}
		if f := one.Services[0].Frontends[0]; f.State != want.state || !strings.Contains(f.Reason, want.reason) {
			t.Errorf("%s: %s %q, want %s %q", id, f.State, f.Reason, want.state, want.reason)
		}
	}
	one, err := s.Only("web")
	if err != nil {
		t.Fatal(err)
	}
	backends := one.Services[0].Frontends[0].Backends
	if l := backends[0].Local; l == nil || !l.Here || l.Flows != 1 {
		t.Errorf("the server that is here: %+v", l)
	}
	if l := backends[1].Local; l == nil || l.Here || l.Reason != "routed through eth0 to another node" {
		t.Errorf("the server that is elsewhere: %+v", l)
	}
	if b := backends[0]; b.Health != "unchecked" || b.InService {
		t.Errorf("a DSR agent neither probes nor balances: %+v", b)
	}
}

func TestDSRAgentIsNotNeededIfRepliesReturn(t *testing.T) {
	for _, m := range []service.Method{service.NAT, service.FullNAT} {
		a := serverScene(t)
		state := a.DSRAgent
		a.DSRAgent = func() (dsr.State, error) {
			s, err := state()
			s.Entries = nil
			return s, err
		}
		view := *a.View()
		view.Plan.Frontends = slices.Clone(view.Plan.Frontends)
		for i := range view.Plan.Frontends {
			s := *view.Plan.Frontends[i].Service
			s.Method = m
			view.Plan.Frontends[i].Service = &s
		}
		a.View = func() *reconciler.View { return &view }
		one, err := a.Gather(eleven).Only("web")
		if err != nil {
			t.Fatal(err)
		}
		f := one.Services[0].Frontends[0]
		if want := string(m) + " returns replies through the load balancer"; f.State != Idle || !strings.Contains(f.Reason, want) || f.Backends[0].Local != nil {
			t.Errorf("%s: %s %q, %+v", m, f.State, f.Reason, f.Backends[0].Local)
		}
	}
}

func TestDSRAgentReportsItsFailures(t *testing.T) {
	a := serverScene(t)
	state := a.DSRAgent
	a.DSRAgent = func() (dsr.State, error) {
		s, err := state()
		s.Entries = nil
		return s, err
	}
	view := *a.View()
	view.Failures = map[string]error{"DSR agent": errors.New("no room for it")}
	a.View = func() *reconciler.View { return &view }
	one, err := a.Gather(eleven).Only("web")
	if err != nil {
		t.Fatal(err)
	}
	if f := one.Services[0].Frontends[0]; f.State != Pending || f.Reason != "no room for it" {
		t.Errorf("%s %q", f.State, f.Reason)
	}
	a.DSRAgent = func() (dsr.State, error) { return dsr.State{}, dsr.ErrClosed }
	if s := a.Gather(eleven); s.DSRAgent != nil || !strings.Contains(s.Problems[1].String(), "DSR agent") {
		t.Errorf("DSR agent %v, problems %v", s.DSRAgent, s.Problems)
	}
}

func TestOnlyRefusesUnknownNames(t *testing.T) {
	s := scene(t).Gather(eleven)
	if _, err := s.Only("web", "nosuch"); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("error %v does not name it", err)
	}
}

func TestKeysOfRanges(t *testing.T) {
	vip := netip.MustParseAddr("10.1.1.1")
	for want, k := range map[string]service.Key{
		"TCP 10.1.1.1:80":        {VIP: vip, Port: 80, Protocol: service.TCP},
		"UDP 10.1.1.1:8000-8999": {VIP: vip, Port: 8000, Last: 8999, Protocol: service.UDP},
		"any 10.1.1.1:*":         {VIP: vip, Last: 65535},
	} {
		f := Frontend{VIP: k.VIP, Port: k.Port, LastPort: k.Last, Protocol: k.Protocol.String()}
		if f.Key() != want || k.String() != want {
			t.Errorf("%s and %s, want %s", f.Key(), k, want)
		}
	}
}

// flooded is a data plane that protects its first frontend.
type flooded struct{ dataplane.DataPlane }

func (f flooded) Counters() ([]dataplane.FrontendCounters, error) {
	all, err := f.DataPlane.Counters()
	for i := range all {
		if all[i].Key.VIP == netip.MustParseAddr("10.1.1.1") {
			all[i].SYN = dataplane.SYNCounts{Guarded: true, ChallengesSent: 7}
		}
	}
	return all, err
}

func TestSYNFloodsAreShown(t *testing.T) {
	a := scene(t)
	a.DataPlane = flooded{a.DataPlane}
	s := a.Gather(eleven)
	shown := 0
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			if f.SYNFlood != nil {
				shown++
				if svc.ID != "default/web" || f.SYNFlood.ChallengesSent != 7 {
					t.Errorf("%s: %+v", svc.ID, f.SYNFlood)
				}
			}
		}
	}
	if shown != 1 {
		t.Errorf("shown at %d frontends", shown)
	}
	for want, view := range map[string]View{
		"SYN floods  protection is active, frontends: 1\n            TCP 10.1.1.1:80 (default/web)\n": s.Overview(),
		"SYN protection is active": s.ServicesView(),
	} {
		if text := string(text(sectionsOf(view, false), Output{})); !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

// TestSendersInWords checks that the status says if anyone is accepted, and lists the
// accepted senders.
func TestSendersInWords(t *testing.T) {
	many := make([]netip.Addr, 12)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	}
	for want, h := range map[string]DSRAgent{
		"any: every host that reaches this node": {},
		"none known, others are rejected":        {ChecksSenders: true},
		"1 known, others are rejected: 10.0.0.0": {ChecksSenders: true, Senders: many[:1]},
		"10.0.0.9, and 2 more":                   {ChecksSenders: true, Senders: many},
	} {
		if got := h.senders(); !strings.Contains(got, want) {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
