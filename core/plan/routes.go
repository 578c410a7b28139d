package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

// candidate collects all offers for one prefix.
type candidate struct {
	frontends []service.Key
	// offers lists the eligible offers, not lists why others are not eligible.
	offers []route.Offer
	not    []string
	// unfit holds each distinct reason why a frontend does not meet an offer's
	// conditions.
	unfit map[string]bool
	// local lists the healthy backends on this node that the prefix leads to.
	local []netip.Addr
}

// collectRoutes adds a route for every prefix that leads to a frontend to program, or a
// refusal.
func (p *Plan) collectRoutes(in Input) {
	decide := in.Announce
	if decide == nil {
		decide = byItself
	}
	byPrefix := map[netip.Prefix]*candidate{}
	refused, offered := map[netip.Addr]string{}, map[netip.Addr]bool{}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.Want == nil && f.State != AwaitingHealth {
			continue
		}
		offers, why := decide(f.Service, f.Key.VIP)
		for _, o := range offers {
			if byPrefix[o.Prefix] == nil {
				byPrefix[o.Prefix] = &candidate{}
			}
			byPrefix[o.Prefix].add(f, o)
			offered[f.Key.VIP] = true
		}
		if len(offers) == 0 {
			refused[f.Key.VIP] = why
		}
	}
	for vip, why := range refused {
		if !offered[vip] { // for another Service that shares it
			p.refuse(netip.PrefixFrom(vip, vip.BitLen()), RuleNoMatchingAdvertisement, why)
		}
	}
	for prefix, w := range byPrefix {
		p.route(in.Node, prefix, w)
	}
	if in.Node.Drain.Stage.Leaves() {
		p.refuseDraining(in.Node.Drain)
	}
	slices.SortFunc(p.Routes, func(a, b Route) int { return a.Compare(b.Route) })
	slices.SortStableFunc(p.Refusals, func(a, b Refusal) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Reason, b.Reason))
	})
}

func (p *Plan) refuse(prefix netip.Prefix, rule Rule, why string) {
	p.Refusals = append(p.Refusals, Refusal{prefix, rule, why})
}

// add records that an offer leads to a frontend. All offers for one frontend are added
// before those for the next.
func (w *candidate) add(f *Frontend, o route.Offer) {
	if n := len(w.frontends); n == 0 || w.frontends[n-1] != f.Key {
		w.frontends = append(w.frontends, f.Key)
		w.local = append(w.local, f.local...)
	}
	why := f.unfit(o)
	switch {
	case why == "" && !slices.Contains(w.offers, o): // the list is short
		w.offers = append(w.offers, o)
	case why != "" && !w.unfit[why]:
		if w.unfit == nil {
			w.unfit = map[string]bool{}
		}
		w.unfit[why] = true
		if len(w.not) < namedUnfit {
			w.not = append(w.not, why)
		}
	}
}

// namedUnfit limits how many frontends a refusal names.
const namedUnfit = 10

// whyNot explains why no offer is eligible.
func (w *candidate) whyNot() string {
	words := strings.Join(w.not, "; ")
	if more := len(w.unfit) - len(w.not); more > 0 {
		words += fmt.Sprintf("; and %d more", more)
	}
	return words
}

// unfit returns why a frontend does not meet the conditions of an offer, or "" if it does
// or if that is not yet known.
func (f *Frontend) unfit(o route.Offer) string {
	switch {
	case f.State == AwaitingHealth:
		return ""
	case f.healthy < o.MinHealthyBackends:
		return fmt.Sprintf("%s requires %d healthy backends (minHealthyBackends), and %s has %d", o.By, o.MinHealthyBackends, f.Key, f.healthy)
	case o.Local && len(f.local) == 0:
		return fmt.Sprintf("%s is for nodes with a healthy local backend (trafficPolicy), and %s has none on this one", o.By, f.Key)
	case o.WeightBy == route.WeightByEndpoints && len(f.local) == 0:
		return fmt.Sprintf("%s weights nodes by their healthy local backends (weightBy), and %s has none on this one", o.By, f.Key)
	}
	return ""
}

// route makes one route from all offers for a prefix.
func (p *Plan) route(node Node, prefix netip.Prefix, w *candidate) {
	if len(w.offers) == 0 {
		p.refuse(prefix, RuleConditionsNotMet, w.whyNot())
		return
	}
	nextHop, family := node.NextHop4, "IPv4"
	if prefix.Addr().Is6() {
		nextHop, family = node.NextHop6, "IPv6"
	}
	if !nextHop.IsValid() {
		p.refuse(prefix, RuleNextHop, fmt.Sprintf("this node has no %s next hop to advertise: set --next-hop", family))
		return
	}
	slices.SortStableFunc(w.offers, func(a, b route.Offer) int { return cmp.Compare(a.By, b.By) })
	made := w.offers[0].Attributes
	made.Weight = w.weight(node, w.offers[0])
	refused := len(p.Refusals)
	for _, o := range w.offers[1:] {
		more, _ := o.Communities.Parse() // validated where they are read
		made.Communities = made.Communities.With(more...)
		made.Peers, made.Mode = unite(made.Peers, o.Peers), made.Mode.With(o.Mode)
		if why := w.differ(node, w.offers[0], o); why != "" && !slices.Contains(p.Refusals[refused:], Refusal{prefix, RuleAttributeConflict, why}) {
			p.refuse(prefix, RuleAttributeConflict, why)
		}
	}
	if node.Drain.Stage == GracefulShutdown {
		made = node.Drain.mark(made)
	}
	p.Routes = append(p.Routes, Route{route.Route{Prefix: prefix, NextHop: nextHop, Attributes: made}, w.frontends, w.by()})
}

// by returns the origins of the offers, which are sorted.
func (w *candidate) by() (all []string) {
	for _, o := range w.offers {
		if o.By != "" {
			all = append(all, o.By)
		}
	}
	return slices.Compact(all)
}

// unite returns the union of two peer lists. An empty list means all peers.
func unite(a, b route.Names) route.Names {
	if a == "" || b == "" {
		return ""
	}
	return route.NamesOf(append(a.List(), b.List()...)...)
}

// differ says which attributes of an offer are overridden by the first offer, or returns
// "".
func (w *candidate) differ(node Node, first, o route.Offer) string {
	var no []string
	for _, field := range []struct {
		name       string
		its, first uint32
	}{
		{"localPreference", o.LocalPreference, first.LocalPreference}, {"med", o.MED, first.MED}, {"asPathPrepend", o.ASPathPrepend, first.ASPathPrepend},
		{"weight", w.weight(node, o), w.weight(node, first)},
	} {
		if field.its != field.first {
			no = append(no, fmt.Sprintf("%s %d, not %d", field.name, field.first, field.its))
		}
	}
	if len(no) == 0 {
		return ""
	}
	return fmt.Sprintf("announced as %s has it, with %s as %s wants: a prefix is announced in one way; make the two say the same, or be for other Services or nodes",
		first.By, strings.Join(no, " and "), o.By)
}

// weight returns the weight that an offer requests.
func (w *candidate) weight(node Node, o route.Offer) uint32 {
	switch o.WeightBy {
	case route.WeightByEndpoints:
		slices.SortFunc(w.local, netip.Addr.Compare)
		w.local = slices.Compact(w.local)
		return uint32(max(len(w.local), 1)) // none is known while their health is pending
	case route.WeightByNode:
		return cmp.Or(o.Weight, node.Weight, 1)
	}
	return 0
}

// byItself returns the prefix under which a VIP is advertised by default: the widest of
// its Service's prefixes that contains it, or the address itself.
func byItself(s *service.Service, vip netip.Addr) ([]route.Offer, string) {
	widest := netip.PrefixFrom(vip, vip.BitLen())
	for _, prefix := range s.Prefixes {
		if prefix.Contains(vip) && prefix.Bits() < widest.Bits() {
			widest = prefix.Masked()
		}
	}
	return []route.Offer{{Prefix: widest}}, ""
}
