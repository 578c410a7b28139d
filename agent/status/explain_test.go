package status

import (
	"bytes"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/reconciler"
)

// among is an announcer with these sessions.
type among struct{ list []advertise.Peer }

func (among) Set([]route.Route) error             { return nil }
func (among) Close() error                        { return nil }
func (among) Withdrawing() []advertise.Withdrawal { return nil }
func (a among) Peers() []advertise.Peer           { return a.list }

// announcing is an agent whose Services are programmed and advertised as far as possible.
func announcing(drain plan.Drain, sessions ...advertise.Peer) Agent {
	private := named("private", "10.1.1.5", time.Hour, "172.16.5.1:80")
	private.Dedicated = true
	down := named("down", "10.1.1.2", time.Hour, "172.16.2.1:80")
	down.Panic = false
	services := []*service.Service{
		named("double", "10.1.1.1", time.Minute, "172.16.6.1:80"), down, named("elsewhere", "10.1.1.3", time.Hour, "172.16.3.1:80"),
		named("odd", "10.1.1.4", time.Hour, "172.16.4.1:80"), private, named("six", "2001:db8::1", time.Hour, "[2001:db8:1::1]:80"),
		named("ours", "10.1.1.8", time.Hour, "172.16.8.1:80"), named("theirs", "10.1.1.9", time.Hour, "172.16.9.1:80"),
		named("unfit", "10.1.1.7", time.Hour, "172.16.7.1:80"), named("web", "10.1.1.1", time.Hour, "172.16.1.1:80"),
	}
	p := plan.Build(plan.Input{
		Services: services, Node: plan.Node{Name: "node1", NextHop4: netip.MustParseAddr("10.0.0.105"), Drain: drain},
		Health: func(t health.Target) health.State {
			return map[bool]health.State{true: health.Down, false: health.Up}[t.Addr.Addr() == netip.MustParseAddr("172.16.2.1")]
		},
		Announce: func(s *service.Service, vip netip.Addr) ([]route.Offer, string) {
			offer := route.Offer{By: "Advertisement edge", Prefix: netip.PrefixFrom(vip, vip.BitLen())}
			switch s.ID.Name {
			case "elsewhere":
				return nil, "no Advertisement is for it on this node: edge is for nodes with labels rack=2"
			case "unfit":
				offer.Local = true
			case "theirs":
				offer.Peers = "tor-9"
			case "ours":
				offer.Peers = "tor-2"
			}
			return []route.Offer{offer}, ""
		},
	})
	v := &reconciler.View{Plan: p, Loaded: true, Held: map[service.Key]desired.Frontend{}, Refused: map[service.Key]string{}, Announced: map[route.Route]time.Time{}}
	for _, f := range p.Frontends {
		switch {
		case f.Want != nil && f.Service.ID.Name == "odd":
			v.Refused[f.Key] = "scheduler lc: not supported by this data plane"
		case f.Want != nil:
			v.Held[f.Key] = *f.Want
		}
	}
	for _, r := range p.Routes {
		if v.Refused[r.Frontends[0]] == "" {
			v.Announced[r.Route] = ago(time.Minute)
		}
	}
	if drain.Stage != "" {
		v.Drain = &reconciler.Drain{Stage: drain.Stage, Why: drain.Why, Since: ago(3 * time.Second), Entered: ago(time.Second), Flows: 2}
	}
	a := Agent{Node: "node1", Role: "balancer", View: func() *reconciler.View { return v }, DataPlane: fake.New()}
	if len(sessions) > 0 {
		a.Announcer = among{sessions}
	}
	return a
}

func TestExplainServices(t *testing.T) {
	up := advertise.Peer{AS: 65021, Name: "tor-1", Address: "10.0.0.1", State: advertise.Established}
	down := advertise.Peer{AS: 65021, Name: "tor-2", Address: "10.0.0.2", State: "active", LastError: "no route to 10.0.0.2: check the address and this machine's routes"}
	cordoned := plan.Drain{Why: []string{"Node node1 is cordoned (kubectl uncordon node1)"},
		Avoid: plan.Avoid{Communities: route.CommunitiesOf(route.GracefulShutdown)}}
	at := func(s plan.Stage) plan.Drain {
		d := cordoned
		d.Stage = s
		return d
	}
	var b bytes.Buffer
	for _, c := range []struct {
		name  string
		agent Agent
		only  []string
	}{
		{"serving, one of two peers", announcing(plan.Drain{}, up, down), nil},
		{"no session", announcing(plan.Drain{}, down), []string{"web"}},
		{"no peers", announcing(plan.Drain{}), []string{"web"}},
		{"graceful shutdown", announcing(at(plan.GracefulShutdown), up), []string{"web"}},
		{"withdrawn", announcing(at(plan.Withdrawn), up), []string{"web"}},
		{"deferred, as the last", announcing(at(plan.Deferred), up), []string{"web"}},
		{"the DSR agent", Agent{Role: "dsr", View: announcing(plan.Drain{}).View}, []string{"web"}},
	} {
		s, err := c.agent.Gather(eleven).Only(c.only...)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(c.name + ":\n")
		if err := Write(&b, s.ExplainServiceView(), Table); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "explain-announce.table", b.String())
	for _, rule := range []plan.Rule{
		RuleAdvertised, RuleNoSession, RuleNoPeers, RuleNoMatchingPeer, RuleRejected, RuleNotABalancer, plan.RuleDraining, plan.RuleNoMatchingAdvertisement, plan.RuleConditionsNotMet,
		plan.RuleNextHop, plan.Rule(plan.NoHealthyBackend), plan.Rule(plan.DedicatedElsewhere), plan.Rule(plan.Conflict),
	} {
		if !strings.Contains(b.String(), " "+string(rule)+" ") {
			t.Errorf("no verdict is by the rule %s", rule)
		}
	}
}

// The page shows a yes and four noes, each by another rule, as a node says them.
func TestExplainServiceOnItsPage(t *testing.T) {
	up := advertise.Peer{AS: 65021, Name: "tor-1", Address: "10.0.0.1", State: advertise.Established}
	s, err := announcing(plan.Drain{}, up).Gather(eleven).Only("web", "down", "elsewhere", "unfit", "six")
	if err != nil {
		t.Fatal(err)
	}
	rules := map[plan.Rule]bool{}
	for _, v := range s.ExplainServices() {
		rules[v.Rule] = v.Advertised
	}
	if len(rules) != 5 || !rules[RuleAdvertised] {
		t.Errorf("the rules are %v", rules)
	}
	var b bytes.Buffer
	if err := Write(&b, s.ExplainServiceView(), Table); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/bgp.md")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		table := regexp.MustCompile("(?s)```text\nSERVICE +VIP .*?```\n")
		page = table.ReplaceAllLiteral(page, []byte("```text\n"+b.String()+"```\n"))
		if err := os.WriteFile("../../docs/bgp.md", page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(string(page), "```text\n"+b.String()+"```\n") {
		t.Errorf("docs/bgp.md does not show this:\n%s", &b)
	}
}

// On a segment one balancer of all answers.
func TestExplainServiceOnASegment(t *testing.T) {
	for state, want := range map[string]plan.Rule{"owner": RuleAdvertised, "standby": RuleStandby} {
		s, err := announcing(plan.Drain{}, advertise.Peer{Address: "10.0.0.3", State: advertise.Established}).Gather(eleven).Only("web")
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Routes {
			s.Routes[i].Layer2 = &Layer2{State: state, Reason: "its turn"}
		}
		if v := s.ExplainServices(); v[0].Rule != want || v[0].Advertised != (want == RuleAdvertised) || v[0].Reason != "its turn" {
			t.Errorf("%s: %+v", state, v)
		}
	}
}

func TestPeersAreFoundByNameAndAddress(t *testing.T) {
	for _, name := range []string{"tor-1", "172.16.9.2"} {
		s, err := balancer().OnlyPeers(name)
		if err != nil || len(s.Peers) != 1 || s.Peers[0].Name != "tor-1" {
			t.Errorf("%s: %+v, %v", name, s.Peers, err)
		}
	}
	if _, err := balancer().OnlyPeers("tor-7"); err == nil || !strings.Contains(err.Error(), "unknown peer tor-7") {
		t.Errorf("error %v", err)
	}
}
