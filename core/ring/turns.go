package ring

import (
	"cmp"
	"slices"
)

// MaxTurns bounds the slots of WeightedRoundRobin, one for each member apart:
// weights that would need more are rounded.
const MaxTurns = 4096

// Members gives a slot to every member that does not drain, in the order of
// addresses: what the schedulers lc and wlc choose from. Weights and
// connections stand beside it.
func Members(members []Member) []Slot {
	var slots []Slot
	for _, m := range taking(members) {
		slots = append(slots, Slot{First: m.ID})
	}
	return slots
}

// RoundRobin gives the slots that the scheduler rr takes in turn. The flow
// table, not the slot, keeps a flow where it is.
func RoundRobin(members []Member) []Slot { return Members(members) }

// WeightedRoundRobin gives the slots that the scheduler wrr takes in turn, and
// p2c at random: as many of every member as its weight says, spread evenly.
func WeightedRoundRobin(members []Member) []Slot {
	members = taking(members)
	reduce(members)
	type turn struct {
		member int
		// The turn's place is number/weight of the whole round.
		number, weight uint64
	}
	var turns []turn
	for i, m := range members {
		for n := range uint64(m.Weight) {
			turns = append(turns, turn{i, 2*n + 1, 2 * uint64(m.Weight)})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.number*b.weight, b.number*a.weight), cmp.Compare(a.member, b.member))
	})
	slots := make([]Slot, len(turns))
	for i, t := range turns {
		slots[i].First = members[t.member].ID
	}
	return slots
}

// taking gives the members that take new flows, in the order of addresses.
func taking(members []Member) []Member {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Weight == 0 })
	slices.SortFunc(members, func(a, b Member) int { return a.Addr.Compare(b.Addr) })
	return members
}

// reduce makes weights as small as they can be; those whose sum is more than
// MaxTurns are rounded down to it, but to no less than one turn.
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

// shorten divides weights by what they have in common and gives their sum.
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
