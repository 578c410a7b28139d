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
func (p *Plan) collectRoutes(node Node) {
	leadsTo := map[netip.Prefix][]service.Key{}
	for i := range p.Frontends {
		if f := &p.Frontends[i]; f.Want != nil || f.State == AwaitingHealth {
			prefix := announced(f.Service, f.Key.VIP)
			leadsTo[prefix] = append(leadsTo[prefix], f.Key)
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

// announced gives the prefix under which a VIP is announced: the widest of its
// Service's prefixes that contains it, or the address alone.
func announced(s *service.Service, vip netip.Addr) netip.Prefix {
	widest := netip.PrefixFrom(vip, vip.BitLen())
	for _, prefix := range s.Prefixes {
		if prefix.Contains(vip) && prefix.Bits() < widest.Bits() {
			widest = prefix.Masked()
		}
	}
	return widest
}
