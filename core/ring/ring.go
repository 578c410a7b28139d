// Package ring lays out the slots in which a data plane looks up the backend of a flow.
// Each slot also records which backends may have its older flows, for the second chance.
// It is pure; the data plane writes the slots into the kernel.
package ring

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// ID is a data plane's number for one backend of one frontend; 0 means none.
type ID = uint32

// Depth is how many backends a slot remembers in addition to its owner.
const Depth = 5

// joins is how many times at which members began a ring looks back on: the latest ones
// and the first. drains is how many times at which members drained.
const joins, drains = 8, 8

// Slot is one slot of a ring.
type Slot struct {
	// First gets the slot's new flows. None if every backend drains.
	First ID
	// Older lists the backends that may have flows older than First's ownership, most
	// likely first, zeros last. Packets that First does not know are forwarded to them
	// one after the other.
	Older [Depth]ID
}

// Chain returns the backends that a packet of a possibly older flow carries. With UDP any
// packet may belong to one, so the slot's owner is also at the end: what nobody knows
// comes back to it as a new flow.
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

// Member is a backend with its ID. A data plane must not change the ID of a backend as
// long as the backend stays in its frontend.
type Member struct {
	ID     ID
	Addr   netip.AddrPort
	Weight uint32
	// Since is when it began to take flows. Zero: always.
	Since time.Time
	// Drained is when its Weight became 0. Zero: unknown.
	Drained time.Time
}

// For returns the slots for a scheduler, like Builder.For without a cache.
func For(s service.Scheduler, prev []Slot, size int, members []Member) ([]Slot, error) {
	return NewBuilder(0).For(s, prev, size, members, nil)
}

// Maglev returns the ring that follows prev, like Builder.Maglev without a cache.
func Maglev(prev []Slot, size int, members []Member) ([]Slot, error) {
	return NewBuilder(0).Maglev(prev, size, members, nil)
}

// For returns the slots for a scheduler: a ring of size slots that follows prev if the
// flow's hash selects the slot, otherwise those of RoundRobin, WeightedRoundRobin or
// Members.
func (b *Builder) For(s service.Scheduler, prev []Slot, size int, members, before []Member) ([]Slot, error) {
	switch s {
	case service.RoundRobin:
		return RoundRobin(members), nil
	case service.WeightedRoundRobin, service.PowerOfTwo:
		return WeightedRoundRobin(members), nil
	case service.LeastConn, service.WeightedLeastConn:
		return Members(members), nil
	}
	return b.Maglev(prev, size, members, before)
}

// Maglev returns the ring that follows prev (nil for the first one), for the schedulers
// maglev, sh and dh, which differ only in what they hash.
//
// First depends only on the members, so that every load balancer agrees. Older has, each
// once and only if they are members: prev's First and prev's Older; who would own the
// slot if no member with an unknown drain time were draining; and who owned it before
// each of the times at which members began or drained, latest first. Except for prev's,
// every load balancer derives the same entries, even one that has just started. A ring
// that follows one of the same members is the same. before, if not nil, is what prev was
// made from: see Next.
func (b *Builder) Maglev(prev []Slot, size int, members, before []Member) ([]Slot, error) {
	lived := len(prev) == size
	next, err := b.Next(size, members, before, lived)
	if err != nil {
		return nil, err
	}
	slots := make([]Slot, size)
	for i := range slots {
		var before *Slot
		if lived {
			before = &prev[i]
		}
		slots[i] = next.Slot(i, before)
	}
	return slots, nil
}

// Next is the ring that Maglev builds, for callers that only need the slots that may have
// changed.
type Next struct {
	rings    []past // now, and before each moment that is not known
	earliest past
	present  set
}

// Next prepares the ring of these members. lived says that it follows another ring of the
// same size. If that one is known to have been built from the members before and is
// complete, the new ring does not look back again on what that one did, nor on how slots
// would have been owned without the members that were removed.
func (b *Builder) Next(size int, members, before []Member, lived bool) (*Next, error) {
	rings, earliest, err := b.history(size, members, before, lived)
	if err != nil {
		return nil, err
	}
	return &Next{rings, earliest, newSet(members)}, nil
}

// Slot returns the successor of the slot before, which may be nil.
func (n *Next) Slot(i int, before *Slot) Slot {
	s := Slot{First: n.rings[0].owner(i)}
	if before == nil && len(n.rings) == 1 { // as when very many begin at the same time: nobody had a slot before
		return s
	}
	known := 0
	if before != nil {
		known = s.follow(before, n.present)
	}
	for j := range n.rings[1:] {
		known = s.add(known, n.rings[1+j].owner(i))
	}
	if before == nil || s != *before {
		s.keepFirst(n.earliest.owner(i))
	}
	return s
}

// Owners writes the member of each slot, and reports whether these are all that slots without
// predecessors name.
func (n *Next) Owners(to []uint64) (all bool) {
	if len(n.rings) > 1 || n.rings[0].slots == nil {
		return false
	}
	ids := n.rings[0].ids
	for i, member := range n.rings[0].slots {
		to[i] = uint64(ids[member])
	}
	return true
}

// Owner returns the member that gets a slot's new flows, 0 without one.
func (n *Next) Owner(i int) ID { return n.rings[0].owner(i) }

// Always reports whether this member, and nobody else, owns a slot, now and before each
// moment that is not known. If it also owns the slot before, and that slot names nobody
// who was removed, then the slot does not change.
func (n *Next) Always(i int, id ID) bool {
	for j := range n.rings {
		if n.rings[j].owner(i) != id {
			return false
		}
	}
	return true
}

// Has reports whether an ID is among the members.
func (n *Next) Has(id ID) bool { return n.present.has(id) }

// keepFirst ensures that a slot with more owners than it can hold drops an intermediate
// owner rather than the very first, who had all flows that existed when the changes
// began.
func (s *Slot) keepFirst(id ID) {
	if id != 0 && id != s.First && s.Older[Depth-1] != 0 && !slices.Contains(s.Older[:], id) {
		s.Older[Depth-1] = id
	}
}

// follow copies the present members of the slot before and returns their number.
func (s *Slot) follow(before *Slot, present set) (n int) {
	if before.First != s.First && present.has(before.First) {
		n = s.add(0, before.First)
	}
	for _, id := range before.Older {
		if id == 0 {
			break
		}
		if present.has(id) {
			n = s.add(n, id)
		}
	}
	return n
}

// add adds an ID unless it is present or there is no room, and returns the new number of
// IDs.
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

// set is a set of IDs, one bit each, starting from the lowest.
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
	at := id - s.lowest // for a lower id, this wraps beyond the end
	return int(at/64) < len(s.bits) && s.bits[at/64]>>(at%64)&1 == 1
}
