package engine

import (
	"net/netip"
	"slices"
)

// silentPrefixes returns the prefixes of neighbors that are sent no routes at all. A
// router within the load balancers' prefix must be excluded: the longest prefix
// determines the group of a neighbor (groupOf), but gobgp's policies match any prefix.
func (e *Engine) silentPrefixes() (all []string) {
	var others []netip.Prefix
	for _, g := range e.Groups {
		if !g.Silent {
			others = append(others, g.Prefixes...)
		}
	}
	for _, g := range e.Groups {
		for _, p := range g.Prefixes {
			if !g.Silent {
				continue
			}
			for _, part := range without(p, others) {
				all = append(all, part.String())
			}
		}
	}
	return all
}

// without returns the part of a prefix that is in none of the longer ones.
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
