package status

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
)

// members is a segment with one answer of every kind.
type members []advertise.Answered

func (m members) Answered() []advertise.Answered { return m }

func (members) Peers() []advertise.Peer {
	return []advertise.Peer{
		{Address: "10.0.0.2", State: "alive", Since: ago(time.Hour), Received: 12000, Sent: 12001},
		{Address: "10.0.0.3", State: "silent", Since: ago(time.Minute), LastError: "nothing received", Received: 7, Sent: 12001},
	}
}

func onSegment() members {
	prefix := netip.MustParsePrefix
	return members{
		{Prefix: prefix("10.1.1.1/32"), State: "owner", Owner: netip.MustParseAddr("10.0.0.1"), Since: ago(time.Hour),
			Reason: "this node has the highest rank of 2 members that offer it"},
		{Prefix: prefix("10.1.1.3/32"), State: "standby", Owner: netip.MustParseAddr("10.0.0.2"), Since: ago(time.Minute),
			Reason: "10.0.0.2 has the highest rank of 2 members that offer it"},
		{Prefix: prefix("10.1.1.4/32"), State: "conflict", Since: ago(5 * time.Second), Problem: true,
			Reason: "02:09:09:09:09:09 already has the address, which is probed again every 10s"},
	}
}

func TestLayer2(t *testing.T) {
	s := Status{Version: "v1", Kernel: "Linux 6.1", Node: "lb1", Role: "balancer", Started: ago(time.Hour), Time: eleven, Peers: members{}.Peers()}
	for _, a := range onSegment() {
		r := Route{Prefix: a.Prefix, NextHop: netip.MustParseAddr("10.0.0.1"), Advertised: true, Since: ago(time.Hour)}
		r.setLayer2(a, true)
		s.Routes = append(s.Routes, r)
	}
	for name, v := range map[string]View{"status": s.Overview(), "routes": s.RoutesView()} {
		for _, f := range []Format{Table, JSON} {
			var got bytes.Buffer
			if err := Write(&got, v, f); err != nil {
				t.Fatal(err)
			}
			golden(t, "layer2-"+name+"."+string(f), got.String())
		}
	}
}

// Without BGP, the answers on the segment decide whether a VIP is advertised; with BGP
// they do not matter. Conditions to fix are problems in both cases.
func TestGatherLayer2(t *testing.T) {
	conflict := advertise.Answered{Prefix: netip.MustParsePrefix("10.1.1.1/32"), State: "conflict", Reason: "somebody has it", Problem: true}
	for _, bgp := range []bool{false, true} {
		a := scene(t)
		a.Layer2 = members{conflict}
		if !bgp {
			a.Announcer = nil
		}
		s := a.Gather(eleven)
		var shown *Route
		for i := range s.Routes {
			if s.Routes[i].Prefix == conflict.Prefix {
				shown = &s.Routes[i]
			}
		}
		if shown == nil || shown.Layer2 == nil || shown.Advertised != bgp || !bgp && shown.Reason != conflict.Reason {
			t.Errorf("with BGP %v: %+v", bgp, shown)
		}
		found := false
		for _, p := range s.Problems {
			found = found || strings.HasPrefix(p.String(), "layer 2, 10.1.1.1/32: somebody has it")
		}
		if peers := len(s.Peers); !found || peers != 2 && !bgp || peers != 3 && bgp {
			t.Errorf("with BGP %v: problems %v, %d peers", bgp, s.Problems, peers)
		}
	}
}

// An Advertisement selects how an address is advertised. What the agent lacks for that is
// the reason, whatever else it has.
func TestModes(t *testing.T) {
	up := advertise.Peer{AS: 65021, Name: "tor-1", Address: "10.0.0.1", State: advertise.Established}
	owner := members{{Prefix: netip.MustParsePrefix("10.1.1.1/32"), State: "owner", Owner: netip.MustParseAddr("10.0.0.105"), Reason: "its turn"}}
	standby := members{{Prefix: netip.MustParsePrefix("10.1.1.1/32"), State: "standby", Owner: netip.MustParseAddr("10.0.0.106"), Reason: "another's turn"}}
	for _, c := range []struct {
		mode   route.Mode
		peers  []advertise.Peer
		layer2 segment
		rule   string
		reason string
	}{
		{route.ModeAny, []advertise.Peer{up}, owner, "advertised", "1 of 1 peers receive it"},
		{route.ModeBGP, []advertise.Peer{up}, members{}, "advertised", "1 of 1 peers receive it"},
		{route.ModeBGP, nil, members{}, "mode-not-available", "the advertisement requires the mode BGP, but this agent has no BGP peer: configure one with --peer or a BGPPeer"},
		{route.ModeLayer2, []advertise.Peer{up}, owner, "advertised", "its turn"},
		{route.ModeLayer2, []advertise.Peer{up}, standby, "standby", "another's turn"},
		{route.ModeLayer2, []advertise.Peer{up}, onSegment()[2:], "pending", ""},
		{route.ModeLayer2, []advertise.Peer{up}, nil, "mode-not-available",
			"the advertisement requires the mode Layer2, but this agent has no layer-2 interface: set --l2-interfaces (l2.interfaces in the chart)"},
		{route.ModeCloud, []advertise.Peer{up}, owner, "mode-not-available", "the advertisement requires the mode Cloud, but this agent has no cloud: set --cloud"},
	} {
		a := announcing(plan.Drain{}, c.peers...)
		a.Layer2 = c.layer2
		v := a.View()
		for i := range v.Plan.Routes {
			r := &v.Plan.Routes[i]
			since := v.Announced[r.Route]
			delete(v.Announced, r.Route)
			if r.Mode = c.mode; c.rule != "pending" {
				v.Announced[r.Route] = since
			}
		}
		s, err := a.Gather(eleven).Only("web")
		if err != nil {
			t.Fatal(err)
		}
		got := s.ExplainServices()[0]
		if string(got.Rule) != c.rule || c.reason != "" && got.Reason != c.reason || got.Advertised != (c.rule == "advertised") {
			t.Errorf("%q: %+v, want %s: %s", c.mode, got, c.rule, c.reason)
		}
	}
}
