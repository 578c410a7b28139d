package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
)

// Routes explains the routes for a prefix, or those that contain an address if it is one:
// the prefix of a single address. It is an error if none exists.
func Routes(s status.Status, of netip.Prefix) ([]Chain, error) {
	var chains []Chain
	seen := map[netip.Prefix]bool{}
	for _, r := range s.Routes {
		if !seen[r.Prefix] && (r.Prefix == of || of.IsSingleIP() && r.Prefix.Contains(of.Addr())) {
			seen[r.Prefix] = true
			chains = append(chains, routeChain(s, r.Prefix))
		}
	}
	switch {
	case len(chains) > 0:
		return chains, nil
	case slices.ContainsFunc(s.Services, func(svc status.Service) bool { return leadsTo(of, svc) }):
		return []Chain{routeChain(s, of)}, nil
	}
	if p := problemOf(s, of); p != "" {
		return []Chain{routeChain(s, of)}, nil
	}
	return nil, fmt.Errorf("unknown route %s: %s", of, unread(s, "see fairlead get routes"))
}

func leadsTo(p netip.Prefix, svc status.Service) bool {
	return slices.ContainsFunc(svc.Frontends, func(f status.Frontend) bool { return p.Contains(f.VIP) })
}

// problemOf returns the problem of a prefix, or "".
func problemOf(s status.Status, of netip.Prefix) string {
	for _, p := range s.Problems {
		if p.Object == "route "+of.String() {
			return p.Message
		}
	}
	return ""
}

func routeChain(s status.Status, p netip.Prefix) Chain {
	c := Chain{Kind: "route", Name: p.String()}
	var paths, not []status.Route
	for _, r := range s.Routes {
		switch {
		case r.Prefix != p:
		case r.NextHop.IsValid():
			paths = append(paths, r)
		default:
			not = append(not, r)
		}
	}
	switch s.Role {
	case status.RoleReflector:
		c.add(received(s, p, paths))
		return c
	case status.RoleRouter:
		c.add(received(s, p, paths))
		c.add(installed(s, p, paths))
		return c
	}
	c.add(origins(s, p, paths))
	if len(paths) == 0 {
		notRequested(&c, p, not)
		return c
	}
	requested(&c, s, p, paths[0], not)
	return c
}

// origins reports which frontends a route leads to.
func origins(s status.Status, p netip.Prefix, paths []status.Route) Step {
	step := Step{Step: StepOrigins, Object: p.String()}
	var names, ids, not []string
	served := 0
	for _, svc := range s.Services {
		if !leadsTo(p, svc) {
			continue
		}
		ids = append(ids, svc.ID)
		for _, f := range svc.Frontends {
			if !p.Contains(f.VIP) {
				continue
			}
			names = append(names, f.Key())
			if f.State.Programmed() {
				served++
			} else {
				not = append(not, f.Key()+" is "+stateWords(f))
			}
		}
	}
	total := len(names)
	if len(paths) > 0 {
		total = max(total, paths[0].Frontends)
	}
	step.Source = some(prefixed("Service ", ids), ", ")
	step.Desired = count(total, "frontend")
	step.Programmed = strings.TrimSuffix(fmt.Sprintf("%d of %d programmed: %s", served, len(names), some(names, ", ")), ": ")
	step.OK, step.Reason, step.Hint = served > 0 || len(paths) > 0 && len(names) == 0, some(not, "; "), "fairlead explain service NAME shows each step of the Service"
	return step
}

func prefixed(prefix string, words []string) (all []string) {
	for _, w := range words {
		all = append(all, prefix+w)
	}
	return all
}

// notRequested explains a prefix without a route.
func notRequested(c *Chain, p netip.Prefix, not []status.Route) {
	if len(not) == 0 {
		c.add(Step{Step: StepRequested, Object: p.String(), Programmed: "no route", Reason: "no frontend of the prefix can be served"})
		return
	}
	for _, r := range not {
		step := Step{Step: StepRequested, Object: p.String(), Source: "Advertisements", Programmed: "no route", Reason: string(r.Rule) + ": " + r.Reason, Hint: ruleHint(r.Rule)}
		switch r.Rule {
		case status.RuleWithdrawing:
			step.Step, step.Source, step.Programmed = StepWithdrawn, "peers", "not confirmed"
		case plan.RuleDraining, plan.RuleNextHop:
			step.Source = "this node"
		}
		c.add(step)
	}
}

// requested explains a route that the plan has.
func requested(c *Chain, s status.Status, p netip.Prefix, r status.Route, not []status.Route) {
	step := Step{Step: StepRequested, Object: p.String(), Source: some(r.Advertisements, ", "), OK: true}
	if step.Source == "" {
		step.Source = "its Services"
	}
	step.Desired = route.Route{Prefix: r.Prefix, NextHop: r.NextHop, Attributes: r.Attributes}.String()
	for _, n := range not {
		if n.Rule == plan.RuleAttributeConflict {
			step.Reason, step.Hint = string(n.Rule)+": "+n.Reason, ruleHint(n.Rule)
		}
	}
	c.add(step)
	sent := Step{Step: StepAdvertised, Object: p.String(), Source: "agent", Desired: "advertised", OK: r.Advertised, Programmed: "not advertised", Hint: ruleHint(r.Rule)}
	if r.Advertised {
		sent.Programmed = strings.TrimSuffix("advertised for "+status.Age(r.Since, s.Time), " for ")
	}
	if r.Rule != "" {
		sent.Reason = string(r.Rule) + ": " + r.Reason
	}
	if r.Layer2 != nil {
		sent.Programmed += ", layer 2: " + r.Layer2.State
	}
	if s.Drain != nil && sent.Reason == "" {
		sent.Reason = s.DrainWords()
	}
	c.add(sent)
	if r.Advertised {
		eachPeer(c, s, r)
	}
}

// eachPeer explains whether each peer receives a route. It stops the chain only if none
// does.
func eachPeer(c *Chain, s status.Status, r status.Route) {
	var steps []Step
	sent := 0
	for _, p := range s.Peers {
		step := Step{Step: StepReceived, Object: "peer " + peerName(p), Source: "session", Desired: "receives it", Programmed: p.State, OK: true}
		switch why := excluded(p, r); {
		case why != "":
			step.Desired, step.Programmed = "does not receive it", "excluded: "+why
		case p.State == advertise.Established:
			sent++
			step.Programmed = strings.TrimSuffix("established for "+status.Age(p.Since, s.Time), " for ")
		default:
			step.Reason, step.Hint = strings.TrimSuffix("the session is "+p.State+": "+p.LastError, ": "), hintPeers
		}
		steps = append(steps, step)
	}
	for _, step := range steps {
		step.OK = step.Reason == "" || sent > 0
		c.add(step)
	}
}

func peerName(p advertise.Peer) string {
	if p.Name != "" && p.Name != p.Address {
		return fmt.Sprintf("%s (%s)", p.Name, p.Address)
	}
	return p.Address
}

// excluded returns why a route is not for a peer, or "".
func excluded(p advertise.Peer, r status.Route) string {
	isBGP := p.AS != 0 // otherwise a layer-2 member or a cloud
	switch a := r.Attributes; {
	case a.Peers != "" && !a.Peers.Has(p.Name):
		return "the Advertisement is for " + strings.Join(a.Peers.List(), ", ")
	case isBGP && !a.Mode.Has(route.ModeBGP), !isBGP && a.Mode == route.ModeBGP:
		return fmt.Sprintf("the Advertisement requires mode %s", a.Mode)
	}
	return ""
}

// received reports what load balancers advertise to a reflector or a router.
func received(s status.Status, p netip.Prefix, paths []status.Route) Step {
	step := Step{Step: StepReceived, Object: p.String(), Source: "BGP", Desired: "a path from each load balancer", OK: len(paths) > 0, Hint: hintPeers}
	step.Programmed = strings.TrimSuffix(fmt.Sprintf("%s: %s", count(len(paths), "next hop"), some(nextHops(paths), ", ")), ": ")
	if step.Reason = problemOf(s, p); step.Reason == "" && len(paths) == 0 {
		step.Reason = "no peer advertises it"
	}
	return step
}

func nextHops(paths []status.Route) (all []string) {
	for _, r := range paths {
		all = append(all, r.NextHop.String())
	}
	return all
}

// installed compares a router's kernel with what it received.
func installed(s status.Status, p netip.Prefix, paths []status.Route) Step {
	step := Step{Step: StepInstalled, Object: p.String(), Source: "kernel", Desired: some(nextHops(paths), ", "), OK: len(paths) > 0,
		Hint: "make the next hop reachable from this router (ip route get)"}
	var has []status.Route
	for _, r := range paths {
		if r.Advertised {
			has = append(has, r)
		}
		if (!r.Advertised || r.Rule == status.RuleDegraded) && r.Reason != "" {
			step.OK, step.Reason = false, r.Reason
		}
	}
	step.Programmed = some(nextHops(has), ", ")
	if len(has) == 0 {
		step.Programmed, step.OK = "none", false
	}
	return step
}
