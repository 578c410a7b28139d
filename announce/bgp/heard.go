package bgp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/announce"
)

// heard is what a router has taken in: whole, and sorted by prefix.
type heard struct {
	accept []netip.Prefix
	sets   []announce.RouteSet
	// refused are prefixes that peers announce and that are not taken, with
	// the reason.
	refused map[netip.Prefix]string
}

// all takes the whole of a table.
func (h *heard) all(sets []announce.RouteSet) {
	h.sets, h.refused = nil, map[netip.Prefix]string{}
	for _, s := range sets {
		if h.welcome(s.Prefix) {
			h.sets = append(h.sets, s)
		}
	}
}

// some takes what the table has now for prefixes that changed.
func (h *heard) some(prefixes []netip.Prefix, sets []announce.RouteSet) {
	for _, p := range prefixes {
		delete(h.refused, p)
		if i, known := h.find(p); known {
			h.sets = slices.Delete(h.sets, i, i+1)
		}
	}
	for _, s := range sets {
		if !h.welcome(s.Prefix) {
			continue
		}
		if i, known := h.find(s.Prefix); known {
			h.sets[i] = s
		} else {
			h.sets = slices.Insert(h.sets, i, s)
		}
	}
}

func (h *heard) find(p netip.Prefix) (int, bool) {
	return slices.BinarySearchFunc(h.sets, p, func(s announce.RouteSet, p netip.Prefix) int { return s.Prefix.Compare(p) })
}

// welcome says whether a prefix is taken in, and notes why where it is not.
func (h *heard) welcome(p netip.Prefix) bool {
	inside := func(outer netip.Prefix) bool { return outer.Bits() <= p.Bits() && outer.Contains(p.Addr()) }
	switch {
	case p.Bits() == 0:
		h.refused[p] = "a balancer's default route is never taken: every packet would go there"
	case len(h.accept) > 0 && !slices.ContainsFunc(h.accept, inside):
		h.refused[p] = fmt.Sprintf("it is outside of what --accept names, %s", listed(h.accept))
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
