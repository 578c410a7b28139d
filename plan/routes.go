package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/service"
)

// collectRoutes gives every prefix that leads to a frontend which is to be
// held, or says why it cannot be announced.
func (p *Plan) collectRoutes(in Input) {
	node, decide := in.Node, in.Announce
	if decide == nil {
		decide = byItself
	}
	leadsTo := map[netip.Prefix][]service.Key{}
	refused, announced := map[netip.Addr]string{}, map[netip.Addr]bool{}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.Want == nil && f.State != AwaitingHealth {
			continue
		}
		prefixes, why := decide(f.Service, f.Key.VIP)
		for _, prefix := range prefixes {
			leadsTo[prefix] = append(leadsTo[prefix], f.Key)
			announced[f.Key.VIP] = true
		}
		if len(prefixes) == 0 {
			refused[f.Key.VIP] = why
		}
	}
	for vip, why := range refused {
		if !announced[vip] { // for another Service that shares it
			p.Refusals = append(p.Refusals, Refusal{netip.PrefixFrom(vip, vip.BitLen()), why})
		}
	}
	for prefix, keys := range leadsTo {
		nextHop, family := node.NextHop4, "IPv4"
		if prefix.Addr().Is6() {
			nextHop, family = node.NextHop6, "IPv6"
		}
		if !nextHop.IsValid() {
			p.Refusals = append(p.Refusals, Refusal{prefix,
				fmt.Sprintf("this node has no %s next hop to announce: set --next-hop", family)})
			continue
		}
		p.Routes = append(p.Routes, Route{announce.Route{Prefix: prefix, NextHop: nextHop}, keys})
	}
	slices.SortFunc(p.Routes, func(a, b Route) int { return a.Compare(b.Route) })
	slices.SortFunc(p.Refusals, func(a, b Refusal) int { return a.Prefix.Compare(b.Prefix) })
}

// byItself gives the prefix under which a VIP is announced where nobody else
// decides: the widest of its Service's prefixes that contains it, or the address
// alone.
func byItself(s *service.Service, vip netip.Addr) ([]netip.Prefix, string) {
	widest := netip.PrefixFrom(vip, vip.BitLen())
	for _, prefix := range s.Prefixes {
		if prefix.Contains(vip) && prefix.Bits() < widest.Bits() {
			widest = prefix.Masked()
		}
	}
	return []netip.Prefix{widest}, ""
}
