package explain_test

import (
	"bytes"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/reconciler/probe"
	"github.com/fairlead/fairlead/source"
)

var update = flag.Bool("update", false, "write the expected output again")

var eleven = time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return eleven.Add(-d) }

// world is a load balancer with one Service, web, of two backends.
type world struct {
	web      *service.Service
	input    plan.Input
	view     reconciler.View
	plane    dataplane.DataPlane
	peers    []advertise.Peer
	probes   map[string]probe.Result // by address
	paths    map[netip.Addr]dataplane.Path
	skip     bool                                    // nothing is programmed
	tampered func(desired.Frontend) desired.Frontend // what the kernel gets instead
}

func newWorld() *world {
	w := &world{
		web: &service.Service{
			ID: service.ID{Namespace: "default", Name: "web"}, Method: service.Tunnel, Encapsulation: service.IPIP, Scheduler: service.Maglev, RingSize: 251,
			Survival: service.SecondChance, Health: service.DefaultHealthCheck, Panic: true, Origin: "web.yaml:1",
			Frontends: []service.Frontend{{Key: service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP}, Backends: []service.Backend{
				{Addr: netip.MustParseAddrPort("172.16.1.10:8080"), Weight: 1, Name: "web-1", Node: "node1", Since: ago(3 * time.Hour)},
				{Addr: netip.MustParseAddrPort("172.16.2.10:8080"), Weight: 1, Name: "web-2", Node: "node2"},
			}}},
		},
		plane: fake.New(),
		peers: []advertise.Peer{
			{AS: 65021, Name: "tor-1", Address: "10.0.0.1", State: advertise.Established, Since: ago(time.Hour)},
			{AS: 65021, Name: "tor-2", Address: "10.0.0.2", State: advertise.Established, Since: ago(time.Hour)},
		},
		probes: map[string]probe.Result{},
		paths: map[netip.Addr]dataplane.Path{
			netip.MustParseAddr("172.16.1.10"): {Interface: "eth0", Gateway: netip.MustParseAddr("10.0.0.11"), MAC: "02:00:00:00:00:01", MTU: 1500},
			netip.MustParseAddr("172.16.2.10"): {Interface: "eth0", MTU: 1500},
		},
	}
	w.input = plan.Input{
		Node:   plan.Node{Name: "node1", NextHop4: netip.MustParseAddr("10.0.0.105")},
		Health: func(t health.Target) health.State { return w.health(t) },
	}
	return w
}

func (w *world) health(t health.Target) health.State {
	if w.probes[t.Addr.String()].Error != "" {
		return health.Down
	}
	return health.Up
}

// down makes a backend fail its health checks.
func (w *world) down(addr string) {
	w.probes[addr] = probe.Result{Since: ago(12 * time.Second), Error: "connect: connection refused", WasUp: true}
}

// status returns what an agent answers to a query.
func (w *world) status(t *testing.T, only selection.Selection) status.Status {
	t.Helper()
	if w.input.Services == nil && w.web != nil {
		w.input.Services = []*service.Service{w.web}
	}
	p := plan.Build(w.input)
	w.view.Plan, w.view.Loaded = p, true
	w.view.Held, w.view.Announced = map[service.Key]desired.Frontend{}, map[route.Route]time.Time{}
	for _, f := range p.Frontends {
		if f.Want == nil || w.skip || w.view.Refused[f.Key] != "" {
			continue
		}
		want := *f.Want
		if w.tampered != nil {
			want = w.tampered(want)
		}
		if err := w.plane.Upsert(want); err != nil {
			t.Fatal(err)
		}
		w.view.Held[f.Key] = *f.Want
	}
	for _, r := range p.Routes {
		if len(w.view.Held) > 0 {
			w.view.Announced[r.Route] = ago(time.Minute)
		}
	}
	return status.Agent{
		Node: "node1", Role: "balancer", View: func() *reconciler.View { return &w.view }, DataPlane: w.plane, Announcer: sessions{w.peers},
		Probed: func(t health.Target) probe.Result {
			if r, ok := w.probes[t.Addr.String()]; ok {
				return r
			}
			return probe.Result{Since: ago(time.Hour), WasUp: true}
		},
		Paths: func([]netip.Addr) (map[netip.Addr]dataplane.Path, error) { return w.paths, nil },
	}.GatherOnly(eleven, only)
}

type sessions struct{ list []advertise.Peer }

func (sessions) Set([]route.Route) error             { return nil }
func (sessions) Close() error                        { return nil }
func (sessions) Withdrawing() []advertise.Withdrawal { return nil }
func (s sessions) Peers() []advertise.Peer           { return s.list }

// explainService is what fairlead explain service web does.
func (w *world) explainService(t *testing.T) explain.Chain {
	t.Helper()
	chains, err := explain.Services(w.status(t, selection.Selection{Services: []string{"web"}}), "web")
	if err != nil || len(chains) != 1 {
		t.Fatalf("%+v, %v", chains, err)
	}
	return chains[0]
}

// story is a fault, and where the explanation of an object stops.
type story struct {
	name   string
	fault  func(*world)
	stops  string // a step, or "" if it is complete
	reason string // part of the reason of that step or, if it is complete, of any
}

var serviceStories = []story{
	{"no fault", func(*world) {}, "", ""},
	{"a typo in an annotation", func(w *world) {
		w.view.Problems = []problem.Problem{{Object: "Service default/web", Where: "web.yaml:6", Field: "metadata.annotations[fairlead.io/schedular]",
			Message: `unknown annotation; did you mean "fairlead.io/scheduler"?`}}
		w.view.Stale = []source.Stale{{Object: "Service default/web", Where: "web.yaml:1", Service: "default/web", Since: ago(time.Minute)}}
	}, explain.StepAccepted, `did you mean "fairlead.io/scheduler"?`},
	{"a typo in a new Service", func(w *world) {
		w.input.Services = []*service.Service{}
		w.view.Problems = []problem.Problem{{Object: "Service default/web", Where: "web.yaml:6", Field: "metadata.annotations[fairlead.io/schedular]", Message: "unknown annotation"}}
	}, explain.StepAccepted, "metadata.annotations[fairlead.io/schedular]: unknown annotation"},
	{"an invalid EndpointSlice", func(w *world) {
		w.web.Frontends[0].Backends = nil
		w.view.Problems = []problem.Problem{{Object: "EndpointSlice default/web-ipv4", Where: "web.yaml:20", Field: "ports[0].port", Message: "0 is out of range"}}
	}, explain.StepAccepted, "0 is out of range"},
	{"no address from a pool", func(w *world) {
		w.input.Services = []*service.Service{}
		w.view.Problems = []problem.Problem{{Object: "Service default/web", Field: "status.loadBalancer.ingress", Message: "the Service waits for an address: NoMatchingPool: no pool"}}
	}, explain.StepAddress, "NoMatchingPool"},
	{"two Services claim the address", func(w *world) {
		other := *w.web
		other.ID.Name, other.Created = "old", ago(time.Hour)
		w.web.Created = ago(time.Minute)
		w.input.Services = []*service.Service{&other, w.web}
	}, explain.StepPlanned, "conflict: Service default/old already has TCP 10.1.1.1:80"},
	{"dedicated load balancers", func(w *world) { w.web.Dedicated = true }, explain.StepPlanned, "dedicated-elsewhere"},
	{"no endpoints", func(w *world) { w.web.Frontends[0].Backends = nil }, explain.StepBackends, "no-endpoints: no EndpointSlice has a ready endpoint"},
	{"a backend is down", func(w *world) { w.down("172.16.2.10:8080") }, "", "172.16.2.10:8080 is down for 12s: connect: connection refused"},
	{"all backends are unhealthy", func(w *world) {
		w.web.Panic = false
		w.down("172.16.1.10:8080")
		w.down("172.16.2.10:8080")
	}, explain.StepBackends, "no-healthy-backend: none of 2 backends passes its tcp health check"},
	{"all backends are unhealthy, in panic mode", func(w *world) {
		w.down("172.16.1.10:8080")
		w.down("172.16.2.10:8080")
	}, "", "panic: none of 2 backends passes its tcp health check"},
	{"all backends drain", func(w *world) {
		for i := range w.web.Frontends[0].Backends {
			w.web.Frontends[0].Backends[i].Weight = 0
		}
	}, explain.StepBackends, "draining: all 2 backends have weight 0"},
	{"the data plane rejects it", func(w *world) {
		w.view.Refused = map[service.Key]string{w.web.Frontends[0].Key: "scheduler lc: not supported by this data plane"}
	}, explain.StepProgrammed, "rejected: scheduler lc"},
	{"the map is full", func(w *world) {
		w.skip = true
		w.view.Failures = map[string]error{w.web.Frontends[0].Key.String(): errors.New("all 4 frontends are in use (MaxFrontends, --max-frontends)")}
	}, explain.StepProgrammed, "pending: all 4 frontends are in use (MaxFrontends, --max-frontends)"},
	{"the kernel differs", func(w *world) {
		w.tampered = func(f desired.Frontend) desired.Frontend {
			f.Backends, f.Scheduler = f.Backends[:1], service.RoundRobin
			return f
		}
	}, explain.StepProgrammed, "scheduler rr instead of maglev; backend 172.16.2.10:8080 is missing"},
	{"no route to a backend", func(w *world) {
		w.paths[netip.MustParseAddr("172.16.2.10")] = dataplane.Path{Error: "the kernel has no route to it"}
	}, "", "172.16.2.10:8080: the kernel has no route to it"},
	{"no route to any backend", func(w *world) {
		for a := range w.paths {
			w.paths[a] = dataplane.Path{Error: "the kernel has no route to it"}
		}
	}, explain.StepReachable, "the kernel has no route to it"},
	{"an advertisement that matches nothing", func(w *world) {
		w.input.Announce = func(*service.Service, netip.Addr) ([]route.Offer, string) {
			return nil, "no Advertisement is for it on this node: edge is for nodes with labels rack=2"
		}
	}, explain.StepAdvertised, "no-matching-advertisement: no Advertisement is for it on this node"},
	{"conditions of an advertisement", func(w *world) {
		w.input.Announce = offers(route.Offer{By: "Advertisement edge", MinHealthyBackends: 3})
	}, explain.StepAdvertised, "conditions-not-met: Advertisement edge requires 3 healthy backends"},
	{"no next hop", func(w *world) { w.input.Node.NextHop4 = netip.Addr{} }, explain.StepAdvertised, "no-next-hop"},
	{"a drained node", func(w *world) {
		why := []string{"Node node1 is cordoned (kubectl uncordon node1)"}
		w.input.Node.Drain = plan.Drain{Stage: plan.Withdrawn, Why: why}
		w.view.Drain = &reconciler.Drain{Stage: plan.Withdrawn, Why: why, Since: ago(3 * time.Second), Entered: ago(time.Second)}
	}, explain.StepAdvertised, "draining: this load balancer is draining: Node node1 is cordoned"},
	{"peers that do not exist", func(w *world) {
		w.input.Announce = offers(route.Offer{By: "Advertisement edge", Attributes: route.Attributes{Peers: "tor-9"}})
	}, explain.StepAdvertised, "no-matching-peer"},
	{"a peer is down", func(w *world) { w.fail(1) }, "", "not received by: 10.0.0.2 (active: connect: no route to host)"},
	{"all peers are down", func(w *world) { w.fail(0); w.fail(1) }, explain.StepReceived, "no-session: no BGP session is established"},
}

// fail ends a session.
func (w *world) fail(peer int) {
	w.peers[peer].State, w.peers[peer].LastError = "active", "connect: no route to host"
}

// offers advertises every address on its own with an offer's conditions.
func offers(o route.Offer) func(*service.Service, netip.Addr) ([]route.Offer, string) {
	return func(_ *service.Service, vip netip.Addr) ([]route.Offer, string) {
		o.Prefix = netip.PrefixFrom(vip, vip.BitLen())
		return []route.Offer{o}, ""
	}
}

// check compares a chain with a story.
func (s story) check(t *testing.T, c explain.Chain) {
	t.Helper()
	if c.StopsAt != s.stops || c.Complete != (s.stops == "") {
		t.Errorf("it stops at %q, want %q: %+v", c.StopsAt, s.stops, c.Steps)
	}
	for _, step := range c.Steps {
		if strings.Contains(step.Reason, s.reason) && (s.stops == "" || !step.OK && step.Step == s.stops && step.Hint != "") {
			return
		}
	}
	t.Errorf("no step has the reason %q: %+v", s.reason, c.Steps)
}

func TestService(t *testing.T) {
	var all bytes.Buffer
	for _, s := range serviceStories {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld()
			s.fault(w)
			c := w.explainService(t)
			s.check(t, c)
			all.WriteString(s.name + ":\n")
			if err := status.Write(&all, explain.View([]explain.Chain{c}), status.Table); err != nil {
				t.Fatal(err)
			}
		})
	}
	golden(t, "service.table", all.String())
}

func TestUnknown(t *testing.T) {
	w := newWorld()
	if _, err := explain.Services(w.status(t, selection.Selection{Services: []string{"nosuch"}}), "nosuch"); err == nil || !strings.Contains(err.Error(), "unknown service nosuch") {
		t.Errorf("%v", err)
	}
	if _, err := explain.Backends(w.status(t, selection.Selection{Backends: []string{"172.16.9.9"}}), "172.16.9.9"); err == nil || !strings.Contains(err.Error(), "unknown backend 172.16.9.9") {
		t.Errorf("%v", err)
	}
	p := netip.MustParsePrefix("10.9.9.0/24")
	if _, err := explain.Routes(w.status(t, selection.Selection{Prefixes: []netip.Prefix{p}}), p); err == nil || !strings.Contains(err.Error(), "unknown route 10.9.9.0/24") {
		t.Errorf("%v", err)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (go test ./agent/explain -update writes it again): -want +got:\n%s", path, d)
	}
}
