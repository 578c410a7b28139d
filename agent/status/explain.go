package status

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/lpm"
)

// Rules in addition to those of the plan. Those of frontends are their states.
const (
	RuleAdvertised       plan.Rule = "advertised"         // no obstacle
	RuleNoPeers          plan.Rule = "no-peers"           // there is no peer to advertise to
	RuleModeNotAvailable plan.Rule = "mode-not-available" // the node does not advertise in the requested way
	RuleNoSession        plan.Rule = "no-session"         // no peer is connected
	RuleNoMatchingPeer   plan.Rule = "no-matching-peer"   // this node has none of the peers that the route is for
	RuleStandby          plan.Rule = "standby"            // another load balancer answers on the segment
	RuleNoL2Owner        plan.Rule = "no-l2-owner"        // nobody answers
	RuleRejected         plan.Rule = "rejected"           // the data plane rejects a frontend
	RulePending          plan.Rule = "pending"            // about to be programmed
	RuleNotABalancer     plan.Rule = "not-a-balancer"     // this agent advertises nothing at all
	RuleNoFrontend       plan.Rule = "no-frontend"        // no frontend has the address
)

// Verdict says whether this node advertises an address of a Service, and which rule
// decided that.
type Verdict struct {
	Service    string     `json:"service"`
	VIP        netip.Addr `json:"vip"`
	Advertised bool       `json:"advertised"`
	Rule       plan.Rule  `json:"rule"`
	// Reason explains the rule, and how to fix it.
	Reason string `json:"reason"`
	// Prefix, NextHop and Attributes are those of the route, if there is one.
	Prefix     netip.Prefix     `json:"prefix,omitzero"`
	NextHop    netip.Addr       `json:"nextHop,omitzero"`
	Attributes route.Attributes `json:"attributes,omitzero"`
	Since      time.Time        `json:"since,omitzero"`
	// Notes contain additional information.
	Notes []string `json:"notes,omitempty"`
}

// ExplainServices says of every address of the Services whether this node announces
// it, and which rule said so.
func (s Status) ExplainServices() []Verdict {
	verdicts, e := []Verdict{}, newExplainer(s)
	for _, svc := range s.Services {
		var vips []netip.Addr
		for _, f := range svc.Frontends {
			vips = append(vips, f.VIP)
		}
		slices.SortFunc(vips, netip.Addr.Compare)
		for _, vip := range slices.Compact(vips) {
			v := Verdict{Service: svc.ID, VIP: vip}
			e.judge(&v, svc)
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// explainer is a Status with its routes indexed by the addresses that they cover.
type explainer struct {
	Status
	routes, refused lpm.Map[*Route]
	withdrawing     lpm.Map[[]advertise.Withdrawal]
}

func newExplainer(s Status) *explainer {
	e := &explainer{Status: s}
	for i := range slices.Backward(s.Routes) { // of several for one prefix, the first counts
		switch r := &s.Routes[i]; {
		case r.Rule == RuleWithdrawing && !r.Advertised:
		case r.NextHop.IsValid():
			e.routes.Put(r.Prefix, r)
		default:
			e.refused.Put(r.Prefix, r)
		}
	}
	perPrefix(s.Withdrawing, e.withdrawing.Put)
	return e
}

// judge evaluates the rules; the first negative one decides.
func (s *explainer) judge(v *Verdict, svc Service) {
	if s.DataPlane == nil {
		v.say(RuleNotABalancer, "this agent has the role "+s.Role+" and advertises no routes")
		return
	}
	if !s.frontendsLet(v, svc) {
		if _, of, is := s.withdrawing.Lookup(v.VIP); is {
			v.Notes = append(v.Notes, waits(of))
		}
		return
	}
	_, r, _ := s.routes.Lookup(v.VIP)
	_, refused, _ := s.refused.Lookup(v.VIP)
	switch {
	case r == nil && refused != nil:
		v.say(refused.Rule, refused.Reason)
		v.Prefix = refused.Prefix
		return
	case r == nil:
		v.say(RulePending, "no route covers it yet")
		return
	}
	v.Prefix, v.NextHop, v.Attributes, v.Since = r.Prefix, r.NextHop, r.Attributes, r.Since
	if refused != nil {
		v.Notes = append(v.Notes, refused.Reason)
	}
	if !r.Advertised {
		v.say(r.Rule, r.Reason)
		return
	}
	s.received(v, r.Layer2)
}

// frontendsLet reports whether a frontend of the address is programmed. If none is, the
// first one gives the reason.
func (s Status) frontendsLet(v *Verdict, svc Service) bool {
	var no *Frontend
	held := false
	for i, f := range svc.Frontends {
		if f.VIP != v.VIP {
			continue
		}
		if f.State.Programmed() {
			held = true
		} else {
			v.Notes = append(v.Notes, fmt.Sprintf("%s is %s: %s", f.Key(), f.State, f.Reason))
			no = cmp.Or(no, &svc.Frontends[i])
		}
	}
	if held {
		return true
	}
	if no == nil {
		v.say(RuleNoFrontend, "no frontend has this address")
		return false
	}
	v.Notes = v.Notes[1:]
	v.say(plan.Rule(no.State), no.Reason)
	return false
}

// received reports a positive verdict if anyone receives the route: a BGP peer, or hosts on
// a segment.
func (s Status) received(v *Verdict, onSegment *Layer2) {
	mode := v.Attributes.Mode
	receivers := Status{Peers: slices.DeleteFunc(slices.Clone(s.Peers), func(p advertise.Peer) bool {
		bgp := p.AS != 0 // otherwise a layer-2 member or a cloud
		return bgp && !mode.Has(route.ModeBGP) || !bgp && (mode == route.ModeBGP || onSegment != nil) ||
			v.Attributes.Peers != "" && !v.Attributes.Peers.Has(p.Name)
	})}
	down, up := receivers.peersDown()
	switch {
	case len(receivers.Peers) == 0 && onSegment != nil && onSegment.State == "owner":
		v.Advertised = true
		v.say(RuleAdvertised, onSegment.Reason)
	case len(receivers.Peers) == 0 && onSegment != nil:
		v.say(RuleStandby, onSegment.Reason)
		return
	case up == 0:
		v.say(RuleNoSession, "no BGP session is established: with "+strings.Join(down, ", "))
		return
	default:
		v.Advertised = true
		v.say(RuleAdvertised, fmt.Sprintf("%d of %d peers receive it", up, len(receivers.Peers)))
	}
	if len(down) > 0 {
		v.Notes = append(v.Notes, "not received by: "+strings.Join(down, ", "))
	}
	if s.Drain != nil {
		v.Notes = append(v.Notes, s.DrainWords())
	}
}

func (v *Verdict) say(rule plan.Rule, reason string) { v.Rule, v.Reason = rule, reason }

// ExplainServiceView looks at these verdicts.
func (s Status) ExplainServiceView() View {
	verdicts := s.ExplainServices()
	v := Sheet{Value: verdicts, Head: []string{"SERVICE", "VIP", "ADVERTISED", "RULE", "ROUTE", "REASON"}}
	for _, one := range verdicts {
		shown := ""
		switch {
		case one.NextHop.IsValid():
			shown = route.Route{Prefix: one.Prefix, NextHop: one.NextHop, Attributes: one.Attributes}.String()
		case one.Prefix.IsValid():
			shown = one.Prefix.String()
		}
		reason := strings.Join(append([]string{one.Reason}, one.Notes...), "; ")
		v.Rows = append(v.Rows, []string{one.Service, one.VIP.String(), yesNo(one.Advertised), string(one.Rule), shown, reason})
	}
	return v
}
