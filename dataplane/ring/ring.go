// Package ring lays out the slots in which a data plane looks up the server of
// a flow, and remembers in each slot who may hold its older flows: the second
// chance. It is pure; writing slots into a kernel is the data plane's business.
package ring

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/maglev"
)

// ID is a data plane's own number for one backend of one frontend; 0 is none.
type ID = uint32

// Slot is one place of a ring.
type Slot struct {
	// First takes the slot's new flows; none where every backend drains.
	First ID
	// Second may hold flows that are older than First's ownership; none
	// where nobody can. What First does not know is sent on to it.
	Second ID
}

// Member is a backend with its number. A data plane must keep a backend's
// number for as long as the backend stays in its frontend.
type Member struct {
	ID     ID
	Addr   netip.AddrPort
	Weight uint32
}

// Maglev gives the ring that follows prev (nil for the first one).
//
// Who is first depends on the members alone, so that every balancer agrees.
// Second is, of these, the first that is another member than First: who would
// own the slot if no member were draining (which every balancer knows alike,
// also one that has just started); prev's First; prev's Second.
func Maglev(prev []Slot, size int, members []Member) ([]Slot, error) {
	first, err := owners(size, members, func(m Member) uint32 { return m.Weight })
	if err != nil {
		return nil, err
	}
	undrained := first
	if slices.ContainsFunc(members, func(m Member) bool { return m.Weight == 0 }) {
		if undrained, err = owners(size, members, undrainedWeight(members)); err != nil {
			return nil, err
		}
	}
	present := make(map[ID]bool, len(members))
	for _, m := range members {
		present[m.ID] = true
	}
	slots := make([]Slot, size)
	for i := range slots {
		slots[i].First = first[i]
		before := Slot{}
		if len(prev) == size {
			before = prev[i]
		}
		for _, id := range [...]ID{undrained[i], before.First, before.Second} {
			if id != first[i] && present[id] {
				slots[i].Second = id
				break
			}
		}
	}
	return slots, nil
}

// undrainedWeight gives a draining member the greatest weight around, because
// the one that it had is no longer known.
func undrainedWeight(members []Member) func(Member) uint32 {
	greatest := uint32(1)
	for _, m := range members {
		greatest = max(greatest, m.Weight)
	}
	return func(m Member) uint32 { return cmp.Or(m.Weight, greatest) }
}

func owners(size int, members []Member, weight func(Member) uint32) ([]ID, error) {
	backends := make([]maglev.Backend, len(members))
	for i, m := range members {
		backends[i] = maglev.Backend{ID: m.Addr, Weight: weight(m)}
	}
	ring, err := maglev.Build(size, backends)
	if err != nil {
		return nil, err
	}
	ids := make([]ID, size)
	for i, owner := range ring {
		if owner != maglev.None {
			ids[i] = members[owner].ID
		}
	}
	return ids, nil
}

// RoundRobin gives the ring of the rr scheduler, which takes its slots in
// turn: every member that does not drain, in the order of addresses. The flow
// table, not the slot, keeps a flow where it is.
func RoundRobin(members []Member) []Slot {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return a.Addr.Compare(b.Addr) })
	var slots []Slot
	for _, m := range members {
		if m.Weight > 0 {
			slots = append(slots, Slot{First: m.ID})
		}
	}
	return slots
}
