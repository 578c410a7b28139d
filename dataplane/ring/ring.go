// Package ring lays out the slots in which a data plane looks up the server of
// a flow, and remembers in each slot who may hold its older flows: the second
// chance. It is pure; writing slots into a kernel is the data plane's business.
package ring

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/maglev"
	"github.com/fairlead/fairlead/service"
)

// ID is a data plane's own number for one backend of one frontend; 0 is none.
type ID = uint32

// Depth is how many servers a slot remembers beside its owner.
const Depth = 5

// joins is how many of the latest times at which members began a ring looks
// back on.
const joins = 4

// Slot is one place of a ring.
type Slot struct {
	// First takes the slot's new flows; none where every backend drains.
	First ID
	// Older may hold flows that are older than First's ownership, the likely
	// ones first, with zeros at the end. What First does not know is sent on
	// to them, one after the other.
	Older [Depth]ID
}

// Chain gives those whom a packet names that may be of an older flow. With UDP
// any packet may be one, so who owns the slot stands at the end too: what
// nobody knows comes back to it as a new flow.
func (s Slot) Chain(p service.Protocol) []ID {
	n := slices.Index(s.Older[:], 0)
	if n < 0 {
		n = Depth
	}
	if p != service.UDP || n == 0 || s.First == 0 {
		return slices.Clone(s.Older[:n])
	}
	return append(slices.Clone(s.Older[:min(n, Depth-1)]), s.First)
}

// Member is a backend with its number. A data plane must keep a backend's
// number for as long as the backend stays in its frontend.
type Member struct {
	ID     ID
	Addr   netip.AddrPort
	Weight uint32
	// Since is when it began to take flows; zero for always.
	Since time.Time
}

// For gives the slots of a scheduler: rings that follow prev and have size
// slots where the flow's hash says the slot, and else those of RoundRobin,
// WeightedRoundRobin or Members.
func For(s service.Scheduler, prev []Slot, size int, members []Member) ([]Slot, error) {
	switch s {
	case service.RoundRobin:
		return RoundRobin(members), nil
	case service.WeightedRoundRobin, service.PowerOfTwo:
		return WeightedRoundRobin(members), nil
	case service.LeastConn, service.WeightedLeastConn:
		return Members(members), nil
	}
	return Maglev(prev, size, members)
}

// Maglev gives the ring that follows prev (nil for the first one), for the
// schedulers maglev, sh and dh, which differ in what they hash alone.
//
// Who is first depends on the members alone, so that every balancer agrees.
// Older are, of these, each once, and no other than members: who would own the
// slot if no member were draining; who owned it before each of the latest times
// at which members began, the latest first; prev's First; prev's Older. All but
// prev's every balancer knows alike, also one that has just started.
func Maglev(prev []Slot, size int, members []Member) ([]Slot, error) {
	rings, err := history(size, members)
	if err != nil {
		return nil, err
	}
	slots := make([]Slot, size)
	present := newSet(members)
	for i := range slots {
		s := &slots[i]
		s.First = rings[0][i]
		n := 0
		for _, past := range rings[1:] {
			n = s.add(n, past[i])
		}
		if len(prev) != size {
			continue
		}
		before := &prev[i]
		if present.has(before.First) {
			n = s.add(n, before.First)
		}
		for _, id := range before.Older {
			if id == 0 {
				break
			}
			if present.has(id) {
				n = s.add(n, id)
			}
		}
	}
	return slots, nil
}

// add remembers one more, if it is one, and gives how many there are.
func (s *Slot) add(n int, id ID) int {
	if id == 0 || id == s.First || n == Depth {
		return n
	}
	for _, known := range s.Older[:n] {
		if known == id {
			return n
		}
	}
	s.Older[n] = id
	return n + 1
}

// history gives the owners of all slots: now, were nobody draining, and before
// each of the latest joins, as members drain now and were nobody draining.
func history(size int, members []Member) ([][]ID, error) {
	weights := []func(Member) uint32{func(m Member) uint32 { return m.Weight }}
	if slices.ContainsFunc(members, func(m Member) bool { return m.Weight == 0 }) {
		weights = append(weights, undrainedWeight(members))
	}
	var rings [][]ID
	for _, its := range append([][]Member{members}, olderMembers(members)...) {
		for _, weight := range weights {
			r, err := owners(size, its, weight)
			if err != nil {
				return nil, err
			}
			rings = append(rings, r)
		}
	}
	return rings, nil
}

// olderMembers gives, for each of the latest times at which members began,
// those that were there before it.
func olderMembers(members []Member) (sets [][]Member) {
	var times []time.Time
	for _, m := range members {
		times = append(times, m.Since)
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	times = slices.CompactFunc(times, time.Time.Equal)
	for _, t := range times[:min(len(times), joins)] {
		older := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !m.Since.Before(t) })
		if len(older) > 0 {
			sets = append(sets, older)
		}
	}
	return sets
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

// set is a set of IDs, a bit each, from the lowest on.
type set struct {
	lowest ID
	bits   []uint64
}

func newSet(members []Member) set {
	if len(members) == 0 {
		return set{}
	}
	low, high := members[0].ID, members[0].ID
	for _, m := range members {
		low, high = min(low, m.ID), max(high, m.ID)
	}
	s := set{low, make([]uint64, (high-low)/64+1)}
	for _, m := range members {
		s.bits[(m.ID-low)/64] |= 1 << ((m.ID - low) % 64)
	}
	return s
}

func (s set) has(id ID) bool {
	at := id - s.lowest // of an id below, this is beyond the end
	return int(at/64) < len(s.bits) && s.bits[at/64]>>(at%64)&1 == 1
}
