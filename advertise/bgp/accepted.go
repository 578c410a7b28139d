package bgp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/advertise"
)

// accepted is the set of routes that a router has accepted, complete and sorted by prefix.
type accepted struct {
	accept []netip.Prefix
	sets   []advertise.RouteSet
	// rejected holds the prefixes that peers advertise but that are not accepted, with the
	// reason.
	rejected map[netip.Prefix]string
}

// all replaces everything with the contents of a table.
func (h *accepted) all(sets []advertise.RouteSet) {
	h.sets, h.rejected = nil, map[netip.Prefix]string{}
	for _, s := range sets {
		if h.welcome(s.Prefix) {
			h.sets = append(h.sets, s)
		}
	}
}

// some updates the prefixes that changed to their current state in the table, in one pass
// however many there are; sets are sorted by prefix.
func (h *accepted) some(prefixes []netip.Prefix, sets []advertise.RouteSet) {
	prefixes = slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare)
	for _, p := range prefixes {
		delete(h.rejected, p)
	}
	old := slices.DeleteFunc(h.sets, func(s advertise.RouteSet) bool {
		_, changed := slices.BinarySearchFunc(prefixes, s.Prefix, netip.Prefix.Compare)
		return changed
	})
	sets = slices.DeleteFunc(sets, func(s advertise.RouteSet) bool { return !h.welcome(s.Prefix) })
	if len(sets) == 0 {
		h.sets = old
		return
	}
	merged := make([]advertise.RouteSet, 0, len(old)+len(sets))
	for len(old) > 0 && len(sets) > 0 {
		if old[0].Prefix.Compare(sets[0].Prefix) < 0 {
			merged, old = append(merged, old[0]), old[1:]
		} else {
			merged, sets = append(merged, sets[0]), sets[1:]
		}
	}
	h.sets = append(append(merged, old...), sets...)
}

// welcome reports whether a prefix is accepted, and records why if it is not.
func (h *accepted) welcome(p netip.Prefix) bool {
	inside := func(outer netip.Prefix) bool { return outer.Bits() <= p.Bits() && outer.Contains(p.Addr()) }
	switch {
	case p.Bits() == 0:
		h.rejected[p] = "default routes from load balancers are rejected: they would attract all traffic"
	case len(h.accept) > 0 && !slices.ContainsFunc(h.accept, inside):
		h.rejected[p] = fmt.Sprintf("it is outside --accept-prefixes %s", listed(h.accept))
	default:
		return true
	}
	return false
}

func listed(prefixes []netip.Prefix) string {
	text := ""
	for i, p := range prefixes {
		if i > 0 {
			text += ", "
		}
		text += p.String()
	}
	return text
}
