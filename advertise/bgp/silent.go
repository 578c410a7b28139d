package bgp

import (
	"net/netip"
	"slices"
)

// silentPrefixes are where those are who are sent no route at all. A router within
// the balancers' prefix is none of them: the longest prefix says who a neighbour
// is (groupOf), also to gobgp's policies, which take any.
func (e *engine) silentPrefixes() (all []string) {
	var others []netip.Prefix
	for _, g := range e.groups {
		if !g.silent {
			others = append(others, g.prefixes...)
		}
	}
	for _, g := range e.groups {
		for _, p := range g.prefixes {
			if !g.silent {
				continue
			}
			for _, part := range without(p, others) {
				all = append(all, part.String())
			}
		}
	}
	return all
}

// without gives what of a prefix is in none of the longer ones.
func without(p netip.Prefix, others []netip.Prefix) []netip.Prefix {
	others = slices.DeleteFunc(slices.Clone(others), func(o netip.Prefix) bool { return o.Bits() <= p.Bits() || !p.Overlaps(o) })
	if len(others) == 0 {
		return []netip.Prefix{p}
	}
	var left []netip.Prefix
	for _, half := range halves(p) {
		if !slices.Contains(others, half) {
			left = append(left, without(half, others)...)
		}
	}
	return left
}

func halves(p netip.Prefix) [2]netip.Prefix {
	low, high := p.Masked().Addr(), p.Masked().Addr().AsSlice()
	high[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	second, _ := netip.AddrFromSlice(high)
	return [2]netip.Prefix{netip.PrefixFrom(low, p.Bits()+1), netip.PrefixFrom(second, p.Bits()+1)}
}
