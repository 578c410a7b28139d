package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// guardChain filters a frontend's packets: a rule sends those to it into a separate
// chain, with a rule for each prefix. Packets to a frontend without filters leave the
// chain before the rules of a range that contains it.
const guardChain = "FAIRLEAD-GUARD"

// guardOf returns f's allowed and denied prefixes, as far as they can be clients of it.
func guardOf(f desired.Frontend) (allow, deny []netip.Prefix) {
	ofFamily := func(all []netip.Prefix) (some []netip.Prefix) {
		for _, p := range all {
			if p.Addr().Is6() == f.VIP.Is6() {
				some = append(some, p.Masked())
			}
		}
		return some
	}
	return ofFamily(f.Allow), ofFamily(f.Deny)
}

// guardRules returns the rules of guardChain and of the chains it refers to.
func (d *DataPlane) guardRules(v6 bool) (rules []rule) {
	vips := map[netip.Addr]bool{}
	for k := range d.guarded {
		if k.VIP.Is6() == v6 {
			rules = append(rules, rule{id: k})
			vips[k.VIP] = vips[k.VIP] || k.Range()
		}
	}
	for a, ranges := range vips {
		for _, k := range d.vips[a].keys {
			if ranges && !d.guarded[k] {
				rules = append(rules, rule{id: k})
			}
		}
	}
	slices.SortFunc(rules, func(a, b rule) int {
		return cmp.Or(cmp.Compare(width(a.id), width(b.id)), a.id.Compare(b.id))
	})
	chains := 0
	for i := range rules {
		if k := rules[i].id; d.guarded[k] {
			chains++
			rules[i].to = chains
			rules = append(rules, d.programmed[k].clientRules(chains)...)
		}
	}
	return rules
}

// width orders frontends: a packet is for the narrowest that has its port.
func width(k service.Key) int {
	switch {
	case k.Whole():
		return 2
	case k.Range():
		return 1
	}
	return 0
}

// clientRules returns the rules of a frontend's own chain. The last one applies to
// clients that no other matches.
func (r *record) clientRules(chain int) (rules []rule) {
	add := func(all []netip.Prefix, drop bool) {
		for _, p := range all {
			if p.Bits() == 0 {
				p = netip.Prefix{} // as iptables prints it
			}
			rules = append(rules, rule{chain: chain, from: p, drop: drop})
		}
	}
	add(r.deny, true)
	add(r.allow, false)
	return append(rules, rule{chain: chain, drop: len(r.allow) > 0})
}

// guardIn reads back the frontend's allowed and denied prefixes.
func guardIn(rules []rule, of service.Key) (allow, deny []netip.Prefix) {
	i := slices.IndexFunc(rules, func(r rule) bool { return r.to > 0 && r.id == of })
	if i < 0 {
		return nil, nil
	}
	everybody := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if of.VIP.Is6() {
		everybody = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	var mine []rule
	for _, r := range rules {
		if r.chain == rules[i].to {
			mine = append(mine, r)
		}
	}
	for _, r := range mine[:max(0, len(mine)-1)] {
		p := r.from
		if !p.IsValid() {
			p = everybody
		}
		if r.drop {
			deny = append(deny, p)
		} else {
			allow = append(allow, p)
		}
	}
	return allow, deny
}

// guardLine formats a rule of guardChain, or of a chain it refers to.
func guardLine(r rule) string {
	line := "-A " + chainName(guardChain, r.chain)
	switch {
	case r.id.VIP.IsValid():
		line += matching(r.id)
	case r.from.IsValid():
		line += " -s " + r.from.String()
	}
	switch {
	case r.to > 0:
		return line + " -g " + chainName(guardChain, r.to)
	case r.drop:
		return line + " -j DROP"
	}
	return line + " -j RETURN"
}

// chainName returns the name of the n-th chain after one, or that itself for 0.
func chainName(chain string, n int) string {
	if n == 0 {
		return chain
	}
	return fmt.Sprintf("%s-%d", chain, n)
}
