package ring

import (
	"cmp"
	"slices"
)

// MaxTurns limits the slots of WeightedRoundRobin, except that each member gets at least
// one. Weights that would need more are rounded.
const MaxTurns = 4096

// Members returns a slot for every member that does not drain, in address order: the
// candidates of the schedulers lc and wlc. Weights and connection counts are kept
// elsewhere.
func Members(members []Member) []Slot {
	var slots []Slot
	for _, m := range taking(members) {
		slots = append(slots, Slot{First: m.ID})
	}
	return slots
}

// RoundRobin returns the slots that the scheduler rr uses one after the other. The flow
// table, not the slot, keeps a flow on its backend.
func RoundRobin(members []Member) []Slot { return Members(members) }

// WeightedRoundRobin returns the slots that the scheduler wrr uses one after the other,
// and p2c at random: as many of every member as its weight. The order is that of IPVS:
// first a pass over the members with the highest weight, then passes over more and more
// members, each down to a lower weight.
func WeightedRoundRobin(members []Member) []Slot {
	members = taking(members)
	reduce(members)
	type turn struct {
		member int
		level  uint32 // the lowest weight of the members in the pass
	}
	var turns []turn
	for i, m := range members {
		for level := m.Weight; level > 0; level-- {
			turns = append(turns, turn{i, level})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(a.member, b.member))
	})
	slots := make([]Slot, len(turns))
	for i, t := range turns {
		slots[i].First = members[t.member].ID
	}
	return slots
}

// taking returns the members that take new flows, in address order.
func taking(members []Member) []Member {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Weight == 0 })
	slices.SortFunc(members, func(a, b Member) int { return a.Addr.Compare(b.Addr) })
	return members
}

// reduce reduces weights to the smallest equivalent ones. If their sum exceeds MaxTurns,
// it scales them down to that, but to no less than one turn each.
func reduce(members []Member) {
	sum := shorten(members)
	if sum <= MaxTurns {
		return
	}
	for i := range members {
		m := &members[i]
		m.Weight = max(1, uint32(uint64(m.Weight)*MaxTurns/sum))
	}
	shorten(members)
}

// shorten divides weights by their greatest common divisor and returns their sum.
func shorten(members []Member) (sum uint64) {
	var common uint32
	for _, m := range members {
		for a, b := m.Weight, common; ; a, b = b, a%b {
			if b == 0 {
				common = a
				break
			}
		}
	}
	for i := range members {
		members[i].Weight /= common
		sum += uint64(members[i].Weight)
	}
	return sum
}
