package xdp

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/ring"
)

// addressRing is a ring by backend addresses: each slot's first, and then older ones.
type addressRing [][1 + ring.Depth]netip.AddrPort

// numbered returns the ring with numbers. Addresses that are not members become 0.
func (r addressRing) numbered(ms members) []ring.Slot {
	numbers := map[netip.AddrPort]ring.ID{}
	for _, m := range ms {
		numbers[m.key.addr] = m.id
	}
	slots := make([]ring.Slot, len(r))
	for i, s := range r {
		slots[i].First = numbers[s[0]]
		n := 0
		for _, addr := range s[1:] {
			if id := numbers[addr]; id != 0 {
				slots[i].Older[n] = id
				n++
			}
		}
	}
	return slots
}

// renumber replaces a ring's server numbers by the current ones, with 0 for former
// members.
func renumber(slots []ring.Slot, before, after members) {
	if sameNumbers(before, after) {
		return // ring.For itself removes former members
	}
	to := map[ring.ID]ring.ID{0: 0}
	for _, m := range before {
		if now := after.find(m.key.addr); now != nil {
			to[m.id] = now.id
		}
	}
	for i := range slots {
		s := &slots[i]
		s.First = to[s.First]
		past := s.Older
		s.Older = [ring.Depth]ring.ID{}
		n := 0
		for _, id := range past {
			if to[id] != 0 {
				s.Older[n] = to[id]
				n++
			}
		}
	}
}

// sameNumbers reports whether all remaining members keep their number.
func sameNumbers(before, after members) bool {
	for _, m := range before {
		if now := after.find(m.key.addr); now != nil && now.id != m.id {
			return false
		}
	}
	return true
}

// allStay reports whether all members of before are also in after.
func allStay(before, after members) bool {
	return !slices.ContainsFunc(before, func(m member) bool { return after.find(m.key.addr) == nil })
}
