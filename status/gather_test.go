package status

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/control"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/memory"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/plan"
	"github.com/fairlead/fairlead/schedule"
	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
)

// peers is an announcer with one established session.
type peers struct{}

func (peers) Set([]announce.Route) error { return nil }
func (peers) Close() error               { return nil }
func (peers) Peers() []announce.Peer {
	return []announce.Peer{{Address: "172.16.9.2", AS: 65021, State: "established"}}
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

// scene is an agent with one Service of every fate.
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
		Held: func(service.Key, netip.AddrPort) bool { return false },
	})
	dp, held := memory.New(), map[service.Key]dataplane.Frontend{}
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
	view := &control.View{
		Plan: p, Loaded: true,
		Problems:  []source.Problem{{Object: "Service default/bad", Message: "no"}},
		Held:      held,
		Refused:   map[service.Key]string{odd: "scheduler lc: not supported by this data plane"},
		Announced: []announce.Route{{Prefix: netip.MustParsePrefix("10.1.1.1/32"), NextHop: netip.MustParseAddr("10.0.0.105")}},
		Failures:  map[string]error{late.String(): errors.New("no space left in map")},
	}
	return Agent{
		Version: "v1", Kernel: "Linux 6.1", Node: "node1", Role: "balancer", Started: eleven,
		View: func() *control.View { return view }, DataPlane: dp, Announcer: peers{},
		Probed: func(t health.Target) (time.Time, string) {
			if t.Addr.String() == "172.16.1.2:80" {
				return ago(time.Minute), "connection refused"
			}
			return ago(time.Hour), ""
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
		"default/odd": {Refused, "scheduler lc"}, "default/six": {plan.Active, ""},
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

func TestEveryRouteHasItsReason(t *testing.T) {
	got := map[string]Route{}
	for _, r := range scene(t).Gather(eleven).Routes {
		got[r.Prefix.String()] = r
	}
	if r := got["10.1.1.1/32"]; !r.Announced || r.Reason != "" {
		t.Errorf("the announced route: %+v", r)
	}
	for prefix, reason := range map[string]string{
		"10.1.1.3/32": "not held by the data plane yet", "10.1.1.4/32": "is refused: scheduler lc", "2001:db8::1/128": "no IPv6 next hop",
	} {
		if r := got[prefix]; r.Announced || !strings.Contains(r.Reason, reason) {
			t.Errorf("%s: %+v, want the reason %q", prefix, r, reason)
		}
	}
	if len(got) != 4 {
		t.Errorf("routes %v, want 4", got)
	}
}

func TestBackendsTellHealthServiceAndTraffic(t *testing.T) {
	s, err := scene(t).Gather(eleven).Only("web")
	if err != nil {
		t.Fatal(err)
	}
	f := s.Services[0].Frontends[0]
	up, down := f.Backends[0], f.Backends[1]
	if up.Health != "up" || !up.InService || !up.Since.Equal(ago(time.Hour)) {
		t.Errorf("up: %+v", up)
	}
	if down.Health != "down" || down.InService || down.LastError != "connection refused" {
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

func TestProblemsTellInputAndFailures(t *testing.T) {
	s := scene(t).Gather(eleven)
	if len(s.Problems) != 2 || s.Problems[0].Object != "Service default/bad" || s.Problems[1].Object != "TCP 10.1.1.3:80" {
		t.Errorf("problems %v", s.Problems)
	}
	a := scene(t)
	a.DataPlane = brokenCounters{a.DataPlane}
	if s := a.Gather(eleven); !strings.Contains(s.Problems[1].Message, "counters unreadable") {
		t.Errorf("problems %v do not tell of the counters", s.Problems)
	}
}

type brokenCounters struct{ dataplane.DataPlane }

func (brokenCounters) Counters() ([]dataplane.FrontendCounters, error) {
	return nil, errors.New("counters unreadable")
}

// TestAgentWithoutBalancer: the server half alone shows the plan, and that it
// announces nothing.
func TestAgentWithoutBalancer(t *testing.T) {
	a := scene(t)
	a.DataPlane, a.Announcer, a.Probed = nil, nil, nil
	a.View = func() *control.View {
		v := *scene(t).View()
		v.Held, v.Announced = nil, nil
		return &v
	}
	s := a.Gather(eleven)
	if s.DataPlane != nil || len(s.Peers) != 0 {
		t.Errorf("data plane %v, peers %v; want none", s.DataPlane, s.Peers)
	}
	if r := s.Routes[0]; r.Announced || !strings.Contains(r.Reason, "announces nothing") {
		t.Errorf("route %+v", r)
	}
}

func TestOnlyRefusesUnknownNames(t *testing.T) {
	s := scene(t).Gather(eleven)
	if _, err := s.Only("web", "nosuch"); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("error %v does not name it", err)
	}
}
