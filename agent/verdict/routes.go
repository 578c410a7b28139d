package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
)

// path returns one prefix by one next hop, whatever its attributes.
func path(r status.Route) route.Route { return route.Route{Prefix: r.Prefix, NextHop: r.NextHop} }

// chosen are rules by which a load balancer does not advertise a route as configured.
var chosen = []plan.Rule{plan.RuleDraining, plan.RuleNoMatchingAdvertisement, plan.RuleConditionsNotMet, status.RuleNoMatchingPeer, status.RuleStandby, status.RuleWithdrawing}

// routes compares what load balancers advertise with each other, and with what routers and
// reflectors have.
func (c *comparison) routes() {
	sent := map[route.Route]string{} // which node advertises it
	hops := map[netip.Addr]string{}  // whose next hop it is
	advertises := map[string]map[netip.Prefix]bool{}
	for _, a := range c.balancers {
		advertises[a.Name] = map[netip.Prefix]bool{}
		for _, r := range a.Routes {
			if r.NextHop.IsValid() {
				hops[r.NextHop] = a.Name
			}
			if r.Advertised && r.Attributes.Mode.Has(route.ModeBGP) {
				advertises[a.Name][r.Prefix] = true
				if r.Attributes.Peers == "" {
					sent[path(r)] = a.Name
				}
			}
		}
	}
	c.advertised(advertises)
	for _, a := range c.all {
		if a.Role == status.RoleRouter || a.Role == status.RoleReflector {
			c.received(a, sent, hops)
		}
	}
}

// advertised reports load balancers that fail to advertise what others do.
func (c *comparison) advertised(advertises map[string]map[netip.Prefix]bool) {
	somewhere := map[netip.Prefix]bool{}
	for _, of := range advertises {
		maps.Copy(somewhere, of)
	}
	for _, a := range c.balancers {
		for _, r := range a.Routes {
			if r.Advertised || !somewhere[r.Prefix] || advertises[a.Name][r.Prefix] || slices.Contains(chosen, r.Rule) {
				continue
			}
			c.add(Disagreement{Kind: Route, Node: a.Name, Object: r.Prefix.String(), Has: "not advertised", Others: "advertised",
				Cause: string(r.Rule) + ": " + r.Reason, Fix: "fairlead explain route " + r.Prefix.String() + " on the node"})
		}
	}
}

// received compares a router, or a reflector, with what load balancers advertise.
func (c *comparison) received(a Answer, sent map[route.Route]string, hops map[netip.Addr]string) {
	has := map[route.Route]bool{}
	number := map[netip.Prefix]int{}
	for _, r := range a.Routes {
		has[path(r)] = true
		number[r.Prefix]++
		from, ours := hops[r.NextHop]
		if _, is := sent[path(r)]; ours && !is && !c.leaving(from, r.Prefix) {
			c.add(Disagreement{Kind: Route, Node: a.Name, Object: path(r).String(), Has: "received", Others: "not advertised by " + from,
				Cause: "a withdrawal was lost, or another machine advertises that next hop", Fix: "fairlead get peers on both"})
		}
	}
	want := map[netip.Prefix]int{}
	for p := range sent {
		want[p.Prefix]++
	}
	for _, p := range slices.SortedFunc(maps.Keys(sent), route.Route.Compare) {
		// A router's kernel may have the gateway to a next hop instead.
		if has[p] || number[p.Prefix] >= want[p.Prefix] {
			continue
		}
		c.add(Disagreement{Kind: Route, Node: a.Name, Object: p.String(), Has: "missing", Others: "advertised by " + sent[p],
			Cause: cmp.Or(c.session(sent[p]), "a policy or a limit rejects it on the way"), Fix: "fairlead explain route " + p.Prefix.String() + " on both"})
	}
}

// leaving reports whether a load balancer is withdrawing a prefix.
func (c *comparison) leaving(node string, p netip.Prefix) bool {
	for _, a := range c.balancers {
		if a.Name != node {
			continue
		}
		for _, w := range a.Withdrawing {
			if w.Prefix == p {
				return true
			}
		}
		// With Advertisements for some peers only, others have the route rightly or not.
		return slices.ContainsFunc(a.Routes, func(r status.Route) bool { return r.Prefix == p && r.Advertised })
	}
	return false
}

// session returns which session of a load balancer is down, or "".
func (c *comparison) session(node string) string {
	for _, a := range c.balancers {
		if a.Name != node {
			continue
		}
		for _, p := range a.Peers {
			if p.AS != 0 && p.State != advertise.Established {
				return fmt.Sprintf("%s has no session with %s: %s", node, p.Address, cmp.Or(p.LastError, p.State))
			}
		}
	}
	return ""
}

// skew is the difference between clocks that is reported.
const skew = time.Second

// clocks compares the clocks of nodes. How long an answer took is how exactly its clock is
// known.
func (c *comparison) clocks() {
	type clock struct {
		Answer
		least, most time.Duration // ahead of who asked
	}
	var all []clock
	for _, a := range c.all {
		if !a.Sent.IsZero() {
			all = append(all, clock{a, a.Time.Sub(a.Received), a.Time.Sub(a.Sent)})
		}
	}
	if len(all) < 2 {
		return
	}
	slices.SortFunc(all, func(a, b clock) int {
		return cmp.Or(cmp.Compare(a.least+a.most, b.least+b.most), cmp.Compare(a.Name, b.Name))
	})
	middle := all[(len(all)-1)/2]
	for _, one := range all {
		ahead, behind := one.least-middle.most, middle.least-one.most
		d := Disagreement{Kind: Clock, Node: one.Name, Others: "of " + middle.Name, Fix: "synchronize the clocks: fairlead doctor on both",
			Cause: "ages of backends and the order of events depend on the clocks"}
		switch {
		case ahead > skew:
			d.Has = fmt.Sprintf("at least %s ahead", ahead.Round(time.Second))
		case behind > skew:
			d.Has = fmt.Sprintf("at least %s behind", behind.Round(time.Second))
		default:
			continue
		}
		c.add(d)
	}
}
