package explain_test

import (
	"bytes"
	"errors"
	"flag"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

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
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab/testkit"
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

// attached is a data plane whose program is at another interface than the backends.
type attached struct{ *fake.DataPlane }

func (attached) Describe() dataplane.Description {
	return dataplane.Description{Kind: "xdp", Attached: []string{"eth1: native"}}
}

// inNamespace is IPVS, which is at no interface.
type inNamespace struct{ *fake.DataPlane }

func (inNamespace) Describe() dataplane.Description {
	return dataplane.Description{Kind: "ipvs", Attached: []string{"the network namespace of this process: IPVS sees what is addressed to a VIP"}}
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
	{"replies by another interface", func(w *world) {
		w.web.Method, w.plane = service.FullNAT, attached{fake.New()}
	}, "", "asymmetric route: replies arrive by an interface without the program (--interface): 172.16.1.10:8080 on eth0, 172.16.2.10:8080 on eth0"},
	{"replies by any interface", func(w *world) { w.web.Method, w.plane = service.FullNAT, inNamespace{fake.New()} }, "", ""},
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
	testkit.Golden(t, name, got, *update)
}

func (w *world) explainBackend(t *testing.T, name string) explain.Chain {
	t.Helper()
	chains, err := explain.Backends(w.status(t, selection.Selection{Backends: []string{name}}), name)
	if err != nil || len(chains) != 1 {
		t.Fatalf("%+v, %v", chains, err)
	}
	return chains[0]
}

func TestBackend(t *testing.T) {
	var all bytes.Buffer
	for _, s := range []story{
		{"no fault", func(*world) {}, "", ""},
		{"it is down", func(w *world) { w.down("172.16.1.10:8080") }, explain.StepHealth, "connect: connection refused"},
		{"it drains", func(w *world) { w.web.Frontends[0].Backends[0].Weight = 0 }, explain.StepSelected, "weight 0 or terminating"},
		{"its frontend is not programmed", func(w *world) {
			w.view.Refused = map[service.Key]string{w.web.Frontends[0].Key: "scheduler lc: not supported by this data plane"}
		}, explain.StepSelected, "the frontend is rejected: scheduler lc"},
		{"no route to it", func(w *world) {
			w.paths[netip.MustParseAddr("172.16.1.10")] = dataplane.Path{Error: "the kernel has no route to it"}
		}, explain.StepReachable, "the kernel has no route to it"},
		{"no neighbor", func(w *world) {
			w.paths[netip.MustParseAddr("172.16.1.10")] = dataplane.Path{Interface: "eth0", MTU: 1500, Error: "172.16.1.10 does not answer on eth0 (no MAC address)"}
		}, explain.StepReachable, "does not answer on eth0"},
	} {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld()
			s.fault(w)
			c := w.explainBackend(t, "172.16.1.10")
			s.check(t, c)
			all.WriteString(s.name + ":\n")
			if err := status.Write(&all, explain.View([]explain.Chain{c}), status.Table); err != nil {
				t.Fatal(err)
			}
		})
	}
	golden(t, "backend.table", all.String())
	if c := newWorld().explainBackend(t, "web-2"); c.Name != "172.16.2.10:8080" || !c.Complete {
		t.Errorf("by the name of its pod: %+v", c)
	}
}

func TestRoute(t *testing.T) {
	prefix := netip.MustParsePrefix("10.1.1.1/32")
	var all bytes.Buffer
	for _, s := range []story{
		{"no fault", func(*world) {}, "", ""},
		{"by an Advertisement, not for all peers", func(w *world) {
			w.input.Announce = offers(route.Offer{By: "Advertisement edge", Attributes: route.Attributes{Peers: "tor-1", MED: 20}})
		}, "", ""},
		{"no frontend is served", func(w *world) { w.web.Frontends[0].Backends = nil }, explain.StepOrigins, "no-endpoints"},
		{"an advertisement that matches nothing", func(w *world) {
			w.input.Announce = func(*service.Service, netip.Addr) ([]route.Offer, string) {
				return nil, "no Advertisement is for it on this node"
			}
		}, explain.StepRequested, "no-matching-advertisement"},
		{"a drained node", func(w *world) {
			w.input.Node.Drain = plan.Drain{Stage: plan.Withdrawn, Why: []string{"by command (fairlead drain)"}}
		}, explain.StepRequested, "draining: this load balancer is draining: by command"},
		{"another withdrawal is not confirmed", func(w *world) {
			w.web.Frontends[0].Backends = nil
			w.view.Withdrawing = []advertise.Withdrawal{{Prefix: prefix, From: "BGP peer 10.0.0.1", Since: ago(time.Minute), Reason: "no answer"}}
		}, explain.StepOrigins, "no-endpoints"},
		{"a peer is down", func(w *world) { w.fail(1) }, "", "the session is active: connect: no route to host"},
		{"all peers are down", func(w *world) { w.fail(0); w.fail(1) }, explain.StepReceived, "the session is active: connect: no route to host"},
	} {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld()
			s.fault(w)
			chains, err := explain.Routes(w.status(t, selection.Selection{Prefixes: []netip.Prefix{prefix}, Addresses: []netip.Addr{prefix.Addr()}}), prefix)
			if err != nil || len(chains) != 1 {
				t.Fatalf("%+v, %v", chains, err)
			}
			s.check(t, chains[0])
			all.WriteString(s.name + ":\n")
			if err := status.Write(&all, explain.View(chains), status.Table); err != nil {
				t.Fatal(err)
			}
		})
	}
	golden(t, "route.table", all.String())
}

// A router explains what it received and what its kernel has.
func TestRouteOfARouter(t *testing.T) {
	p, hop := netip.MustParsePrefix("10.1.1.0/24"), netip.MustParseAddr("10.0.0.105")
	for name, c := range map[string]struct {
		role   string
		routes []status.Route
		story
	}{
		"installed":  {status.RoleRouter, []status.Route{{Prefix: p, NextHop: hop, Advertised: true}}, story{}},
		"missing":    {status.RoleRouter, []status.Route{{Prefix: p, NextHop: hop, Reason: "not yet installed in the kernel"}}, story{stops: explain.StepInstalled, reason: "not yet installed"}},
		"degraded":   {status.RoleRouter, []status.Route{{Prefix: p, NextHop: hop, Advertised: true, Rule: status.RuleDegraded, Reason: "no route to host"}}, story{stops: explain.StepInstalled, reason: "no route to host"}},
		"reflected":  {status.RoleReflector, []status.Route{{Prefix: p, NextHop: hop, Advertised: true}}, story{}},
		"unaccepted": {status.RoleRouter, nil, story{stops: explain.StepReceived, reason: "it is outside --accept-prefixes"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := status.Status{Role: c.role, Routes: c.routes}
			if c.routes == nil {
				s.Problems = []problem.Problem{{Object: "route 10.1.1.0/24", Message: "it is outside --accept-prefixes 10.2.0.0/16"}}
			}
			chains, err := explain.Routes(s, p)
			if err != nil || len(chains) != 1 {
				t.Fatalf("%+v, %v", chains, err)
			}
			c.check(t, chains[0])
		})
	}
}

// step is a step of a trace.
func step(note, text string) xdp.TraceStep { return xdp.TraceStep{Note: note, Text: text} }

func TestFlow(t *testing.T) {
	to := step("frontend", "frontend TCP 10.1.1.1:80 (Service default/web): forwarding mode tunnel, scheduler maglev")
	slot, belongs := step("slot", "hash 0x0000002a: slot 7 of 251"), step("server", "the slot belongs to 172.16.1.10:8080; no other backend can have its flows")
	leaves := []xdp.TraceStep{step("ask", "kernel route lookup: route found, MTU 1500"), step("next-hop", "sent on eth0 to 02:00:00:00:00:01")}
	vip := netip.MustParseAddrPort("10.1.1.1:80")
	var all bytes.Buffer
	for _, s := range []struct {
		story
		vip   netip.AddrPort
		trace *xdp.Trace
	}{
		{story{name: "forwarded"}, vip, &xdp.Trace{Verdict: "XDP_REDIRECT", Steps: append([]xdp.TraceStep{to, slot, belongs}, leaves...)}},
		{story{"another port", nil, explain.StepFrontend, "no frontend has this port"}, netip.MustParseAddrPort("10.1.1.1:81"),
			&xdp.Trace{Verdict: "XDP_DROP", Drop: "no-frontend", Steps: []xdp.TraceStep{step("unserved", "the destination is a VIP, but no frontend has this port and protocol"), step("drop", "dropped: no-frontend")}}},
		{story{"a Service without endpoints", func(w *world) { w.web.Frontends[0].Backends = nil }, explain.StepFrontend, "TCP 10.1.1.1:80 is no-endpoints"}, vip,
			&xdp.Trace{Verdict: "XDP_PASS", Steps: []xdp.TraceStep{step("not-ours", "the destination is neither a VIP nor an address of this load balancer")}}},
		{story{"another Service has lost the address", func(w *world) {
			w.web.Frontends[0].Backends = nil
			other := *w.web
			other.ID.Name, w.web.Created, other.Created = "younger", ago(time.Hour), ago(time.Minute)
			w.input.Services = []*service.Service{w.web, &other}
		}, explain.StepFrontend, "TCP 10.1.1.1:80 is no-endpoints"}, vip,
			&xdp.Trace{Verdict: "XDP_PASS", Steps: []xdp.TraceStep{step("not-ours", "the destination is neither a VIP nor an address of this load balancer")}}},
		{story{"outside the source ranges", func(w *world) { w.web.Allow = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")} }, explain.StepPolicy, "dropped: source-denied"}, vip,
			&xdp.Trace{Verdict: "XDP_DROP", Drop: "source-denied", Steps: []xdp.TraceStep{to, step("drop", "dropped: source-denied")}}},
		{story{"the flow table is full", nil, explain.StepBackend, "dropped: flows-full"}, vip,
			&xdp.Trace{Verdict: "XDP_DROP", Drop: "flows-full", Steps: []xdp.TraceStep{to, slot, step("drop", "dropped: flows-full")}}},
		{story{"no route to the backend", nil, explain.StepForwarded, "dropped: no-route"}, vip,
			&xdp.Trace{Verdict: "XDP_DROP", Drop: "no-route", Steps: []xdp.TraceStep{to, slot, belongs, step("ask", "kernel route lookup: unreachable"), step("drop", "dropped: no-route")}}},
		{story{"larger than the MTU", nil, explain.StepForwarded, "dropped: too-big"}, vip,
			&xdp.Trace{Verdict: "XDP_REDIRECT", Drop: "too-big", Steps: []xdp.TraceStep{to, slot, belongs, step("drop", "dropped: too-big"), step("answer", "answered by the load balancer: packet too big, maximum 1480 bytes")}}},
		{story{name: "without a trace"}, vip, nil},
		{story{"denied, without a trace", func(w *world) { w.web.Deny = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }, explain.StepPolicy, "outside the source ranges"}, vip, nil},
		{story{"another address, without a trace", nil, explain.StepFrontend, "no Service has the address 10.1.1.9"}, netip.MustParseAddrPort("10.1.1.9:80"), nil},
	} {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld()
			if s.fault != nil {
				s.fault(w)
			}
			c := explain.Flow(w.status(t, selection.Selection{Addresses: []netip.Addr{s.vip.Addr()}}), explain.FlowFacts{
				Client: netip.MustParseAddrPort("192.0.2.7:1234"), VIP: s.vip, Protocol: service.TCP, Trace: s.trace,
				Tracked: []dataplane.Flow{{Server: netip.MustParseAddrPort("172.16.1.10:8080"), State: "established", Idle: 3 * time.Second}},
			})
			s.check(t, c)
			all.WriteString(s.name + ":\n")
			if err := status.Write(&all, explain.View([]explain.Chain{c}), status.Table); err != nil {
				t.Fatal(err)
			}
		})
	}
	golden(t, "flow.table", all.String())
}

// The page shows how an unhealthy Service and one of its backends are explained, and names
// every step.
func TestPage(t *testing.T) {
	const path = "../../docs/troubleshooting.md"
	w := newWorld()
	w.web.Panic = false
	w.down("172.16.1.10:8080")
	w.down("172.16.2.10:8080")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, c := range []explain.Chain{w.explainService(t), w.explainBackend(t, "172.16.2.10")} {
		var b bytes.Buffer
		if err := status.Write(&b, explain.View([]explain.Chain{c}), status.Table); err != nil {
			t.Fatal(err)
		}
		block := "```text\n" + b.String() + "```\n"
		if *update {
			page = regexp.MustCompile("(?s)```text\n"+c.Kind+"[ \n].*?```\n").ReplaceAllLiteralString(page, block)
		}
		if !strings.Contains(page, block) {
			t.Errorf("%s (go test ./agent/explain -update writes it again) does not show:\n%s", path, &b)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range explain.Steps {
		if !strings.Contains(page, "`"+step+"`") {
			t.Errorf("%s does not name the step %s", path, step)
		}
	}
}

// A node with backends explains which of them are here.
func TestServiceOnABackendNode(t *testing.T) {
	w := newWorld()
	w.status(t, selection.Selection{})
	web := w.web.Frontends[0]
	s := status.Agent{
		Role: "dsr", View: func() *reconciler.View { return &w.view },
		Placement: func() (dsr.State, error) {
			return dsr.State{
				Entries: []dsr.Entry{{Key: web.Key, Method: service.Tunnel, Server: web.Backends[0].Addr}},
				Abroad:  map[netip.Addr]string{web.Backends[1].Addr.Addr(): "routed through eth0 to another node"},
			}, nil
		},
	}.GatherOnly(eleven, selection.Selection{Services: []string{"web"}})
	chains, err := explain.Services(s, "web")
	if err != nil || len(chains) != 1 || !chains[0].Complete {
		t.Fatalf("%+v, %v", chains, err)
	}
	if last := chains[0].Steps[len(chains[0].Steps)-1]; last.Step != explain.StepDelivered || last.Programmed != "1 on this node" {
		t.Errorf("%+v", last)
	}
	for name, want := range map[string]string{"172.16.1.10": "delivered on this node", "172.16.2.10": "not on this node: routed through eth0 to another node"} {
		chains, err := explain.Backends(s, name)
		if err != nil || len(chains) != 1 {
			t.Fatalf("%+v, %v", chains, err)
		}
		if last := chains[0].Steps[len(chains[0].Steps)-1]; !strings.HasPrefix(last.Programmed, want) {
			t.Errorf("%s: %+v", name, last)
		}
	}
}
