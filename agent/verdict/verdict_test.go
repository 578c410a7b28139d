package verdict

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

var (
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	prefix = netip.MustParsePrefix("10.1.1.0/24")
	hops   = map[string]netip.Addr{"lb1": netip.MustParseAddr("10.0.0.1"), "lb2": netip.MustParseAddr("10.0.0.2"), "lb3": netip.MustParseAddr("10.0.0.3")}
)

// balancer returns what a load balancer answers.
func balancer(name string) Answer {
	backend := func(address string) status.Backend {
		return status.Backend{Address: netip.MustParseAddrPort(address), Weight: 1, ProgrammedWeight: 1, InService: true, Health: "up", Since: noon.Add(-time.Hour)}
	}
	return Answer{Name: name, Sent: noon, Received: noon.Add(10 * time.Millisecond), Status: status.Status{
		Node: name, Version: "v1", Role: "balancer", Time: noon.Add(5 * time.Millisecond), DataPlane: &dataplane.Description{Kind: "xdp"},
		Services: []status.Service{{ID: "default/web", ForwardingMode: service.Tunnel, Scheduler: service.Maglev, MaglevTableSize: 251, Frontends: []status.Frontend{{
			VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: "TCP", State: plan.Active, Table: "251-a",
			Backends: []status.Backend{backend("172.16.1.10:8080"), backend("172.16.2.10:8080")},
		}}}},
		Routes: []status.Route{{Prefix: prefix, NextHop: hops[name], Advertised: true}},
		Peers:  []advertise.Peer{{Address: "10.0.0.110", AS: 65000, State: advertise.Established}},
	}}
}

// cluster returns three load balancers and a router that agree.
func cluster() []Answer {
	all := []Answer{balancer("lb1"), balancer("lb2"), balancer("lb3")}
	router := Answer{Name: "router", Status: status.Status{Version: "v1", Role: status.RoleRouter, Time: noon}}
	for _, b := range all {
		router.Routes = append(router.Routes, status.Route{Prefix: prefix, NextHop: hops[b.Name], Advertised: true})
	}
	return append(all, router)
}

func frontend(a *Answer) *status.Frontend { return &a.Services[0].Frontends[0] }

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(all []Answer)
		want   []string // parts of the lines; none: all agree
	}{
		"agreement":           {func([]Answer) {}, nil},
		"another release":     {func(all []Answer) { all[1].Version = "v2" }, []string{"lb2: release: v2, others: v1; an upgrade"}},
		"another data plane":  {func(all []Answer) { all[2].DataPlane.Kind = "ipvs" }, []string{"lb3: data-plane: ipvs, others: xdp"}},
		"no answer":           {func(all []Answer) { all[1] = Answer{Name: "lb2", Err: errors.New("no answer within 5s")} }, []string{"lb2 did not answer: no answer within 5s"}},
		"a key only here":     {func(all []Answer) { all[0].NodeKeys = &status.NodeKeys{Sends: "5f"} }, []string{"lb1: node-key: 5f, others: none"}},
		"a Service is absent": {func(all []Answer) { all[1].Services = nil }, []string{"lb2: frontend TCP 10.1.1.1:80: unknown, others: programmed; its manifests"}},
		"a Service is rejected": {func(all []Answer) {
			all[1].Services = nil
			all[1].Problems = []problem.Problem{{Object: "Service default/web", Where: "web.yaml:1", Message: "no port"}}
		}, []string{"others: programmed; web.yaml:1: Service default/web: no port"}},
		"dedicated elsewhere": {func(all []Answer) { frontend(&all[1]).State = plan.DedicatedElsewhere }, nil},
		"not programmed": {func(all []Answer) {
			f := frontend(&all[0])
			f.State, f.Reason = status.Pending, "table full"
		}, []string{"lb1: frontend TCP 10.1.1.1:80: pending, others: programmed; table full"}},
		"another scheduler": {func(all []Answer) { all[0].Services[0].Scheduler = "rr" }, []string{"lb1: frontend TCP 10.1.1.1:80: tunnel, rr, others: tunnel, maglev 251; its manifest is another"}},
		"stale": {func(all []Answer) {
			all[0].Services[0].MaglevTableSize, all[0].Services[0].StaleSince = 1009, noon
		}, []string{"maglev 1009, others: tunnel, maglev 251; it rejects the current manifest"}},
		"a backend is down for one": {func(all []Answer) {
			b := &frontend(&all[2]).Backends[0]
			b.Health, b.LastError, b.InService = "down", "refused", false
			frontend(&all[2]).Table = "251-b"
		}, []string{"lb3: backend 172.16.1.10:8080 of TCP 10.1.1.1:80: no new flows, others: weight 1; lb3 considers it down: refused"}},
		"a backend just failed": {func(all []Answer) {
			b := &frontend(&all[2]).Backends[0]
			b.Health, b.InService, b.Since = "down", false, noon.Add(-time.Second)
		}, nil},
		"a backend just failed, and it was the last one": {func(all []Answer) {
			f := frontend(&all[2])
			f.State, f.Backends[0].Since = plan.NoHealthyBackend, noon.Add(-time.Second)
		}, nil},
		"one drains what another never had": {func(all []Answer) {
			for i := range all[:3] {
				b := &frontend(&all[i]).Backends[0]
				b.Health, b.ProgrammedWeight, b.Draining = "down", 0, i == 0
				b.InService = i != 1
			}
		}, nil},
		"another weight":         {func(all []Answer) { frontend(&all[0]).Backends[1].ProgrammedWeight = 3 }, []string{"weight 3, others: weight 1; its manifest is another version"}},
		"a backend is unknown":   {func(all []Answer) { frontend(&all[0]).Backends = frontend(&all[0]).Backends[:1] }, []string{"172.16.2.10:8080 of TCP 10.1.1.1:80: unknown, others: weight 1"}},
		"another table":          {func(all []Answer) { frontend(&all[1]).Table = "251-b" }, []string{"lb2: table TCP 10.1.1.1:80: 251-b, others: 251-a; the Maglev tables differ although"}},
		"IPVS has no table":      {func(all []Answer) { frontend(&all[1]).Table = "" }, nil},
		"not advertised":         {unadvertised("no-next-hop"), []string{"lb2: route 10.1.1.0/24: not advertised, others: advertised; no-next-hop", "via 10.0.0.2: received, others: not advertised by lb2"}},
		"the router lacks a hop": {func(all []Answer) { all[3].Routes = all[3].Routes[1:] }, []string{"router: route 10.1.1.0/24 via 10.0.0.1: missing, others: advertised by lb1; a policy"}},
		"a session is down": {func(all []Answer) {
			all[3].Routes = all[3].Routes[1:]
			all[0].Peers[0] = advertise.Peer{Address: "10.0.0.110", AS: 65000, State: "active", LastError: "refused"}
		}, []string{"lb1 has no session with 10.0.0.110: refused"}},
		"the router has the gateway": {func(all []Answer) { all[3].Routes[0].NextHop = netip.MustParseAddr("192.168.0.1") }, nil},
		"draining": {func(all []Answer) {
			unadvertised(plan.RuleDraining)(all)
			all[3].Routes = append(all[3].Routes[:1], all[3].Routes[2])
		}, nil},
		"withdrawing": {func(all []Answer) {
			unadvertised(status.RuleWithdrawing)(all)
			all[1].Withdrawing = []advertise.Withdrawal{{Prefix: prefix}}
		}, nil},
		"a clock is ahead":   {func(all []Answer) { all[2].Time = noon.Add(time.Minute) }, []string{"lb3: clock: at least 1m0s ahead, others: of lb2"}},
		"a clock is behind":  {func(all []Answer) { all[0].Time = noon.Add(-3 * time.Second) }, []string{"lb1: clock: at least 3s behind, others: of lb2"}},
		"a slow answer":      {func(all []Answer) { all[2].Received = noon.Add(5 * time.Second) }, nil},
		"conflicting claims": {func(all []Answer) { frontend(&all[0]).State = plan.Conflict }, []string{"lb1: frontend TCP 10.1.1.1:80: unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := cluster()
			c.change(all)
			v := Of(all)
			text := strings.Join(v.Lines(), "\n")
			if v.Agree != (len(c.want) == 0) || len(v.Disagreements)+len(v.Unanswered) != len(c.want) {
				t.Errorf("%s\nwant %q", text, c.want)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s\nlacks %q", text, want)
				}
			}
		})
	}
}

// TestRoutersHaveNoKeys: those of load balancers agree, however many routers there are.
func TestRoutersHaveNoKeys(t *testing.T) {
	all := cluster()
	for i := range all[:3] {
		all[i].NodeKeys = &status.NodeKeys{Sends: "5f"}
	}
	for range 3 {
		all = append(all, all[3])
	}
	for _, d := range Of(all).Disagreements {
		if d.Kind == NodeKey {
			t.Errorf("%+v", d)
		}
	}
}

// unadvertised makes lb2 stop to advertise its route.
func unadvertised(rule plan.Rule) func([]Answer) {
	return func(all []Answer) {
		r := &all[1].Routes[0]
		r.Advertised, r.Rule = false, rule
	}
}

// TestSettled is not misled by a change that is being rolled out.
func TestSettled(t *testing.T) {
	for name, c := range map[string]struct {
		second func(all []Answer)
		agree  bool
	}{
		"it arrives":           {func([]Answer) {}, true},
		"the next one follows": {func(all []Answer) { frontend(&all[1]).Table = "251-c" }, true},
		"it stays":             {func(all []Answer) { frontend(&all[1]).Table = "251-b" }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			v, _ := Settled(t.Context(), func(context.Context) []Answer {
				all := cluster()
				if asked++; asked == 1 {
					frontend(&all[1]).Table = "251-b"
				} else {
					c.second(all)
				}
				return all
			})
			if asked != 2 || v.Agree != c.agree {
				t.Errorf("%s: asked %d times: %v", name, asked, v.Lines())
			}
		})
	}
}

// TestManyAlike counts what differs in the same way.
func TestManyAlike(t *testing.T) {
	all := cluster()[:3]
	for i := range all {
		for port := range uint16(100) {
			f := *frontend(&all[i])
			f.Port = 1000 + port
			all[i].Services[0].Frontends = append(all[i].Services[0].Frontends, f)
		}
	}
	all[1].Services = nil
	v := Of(all)
	if len(v.Disagreements) != 1 || v.Disagreements[0].More != 100 {
		t.Errorf("%v", v.Lines())
	}
	if s := Sheet(v, all); len(s.Rows) != 3 || !strings.HasPrefix(s.Lines[0], "verdict: 1 of 3 nodes disagree (differences: 1)") {
		t.Errorf("%+v", s)
	}
}
