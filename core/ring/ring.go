// Package ring lays out the slots in which a data plane looks up the server of
// a flow, and remembers in each slot who may hold its older flows: the second
// chance. It is pure; writing slots into a kernel is the data plane's business.
package ring

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// ID is a data plane's own number for one backend of one frontend; 0 is none.
type ID = uint32

// Depth is how many servers a slot remembers beside its owner.
const Depth = 5

// joins is how many times at which members began a ring looks back on: the
// latest ones, and the first. drains is how many at which members drained.
const joins, drains = 8, 8

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
	// Drained is since when its Weight is 0; zero for not known.
	Drained time.Time
}

// For gives the slots of a scheduler, as Builder.For does, without a memory.
func For(s service.Scheduler, prev []Slot, size int, members []Member) ([]Slot, error) {
	return NewBuilder(0).For(s, prev, size, members, nil)
}

// Maglev gives the ring that follows prev, as Builder.Maglev does, without a
// memory.
func Maglev(prev []Slot, size int, members []Member) ([]Slot, error) {
	return NewBuilder(0).Maglev(prev, size, members, nil)
}

// For gives the slots of a scheduler: a ring that follows prev and has size
// slots where the flow's hash says the slot, and else those of RoundRobin,
// WeightedRoundRobin or Members.
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

// Maglev gives the ring that follows prev (nil for the first one), for the
// schedulers maglev, sh and dh, which differ in what they hash alone.
//
// Who is first depends on the members alone, so that every balancer agrees.
// Older are, each once, and no other than members: prev's First and prev's
// Older; who would own the slot if no member were draining of which it is not
// known since when; who owned it before each of the times at which members began
// or drained, the latest first. All but prev's every balancer knows alike, also
// one that has just started. A ring that
// follows one of the same members is the same. before, where it is not nil, is what
// prev was made from: see Next.
func (b *Builder) Maglev(prev []Slot, size int, members, before []Member) ([]Slot, error) {
	lived := len(prev) == size
	next, err := b.Next(size, members, before, lived)
	if err != nil {
		return nil, err
	}
	slots := b.take(size)
	if !lived && len(next.rings) == 1 { // as when very many begin at once: nobody had a slot before
		for i := range slots {
			slots[i] = Slot{First: next.rings[0].owner(i)}
		}
		return slots, nil
	}
	for i := range slots {
		var before *Slot
		if lived {
			before = &prev[i]
		}
		slots[i] = next.Slot(i, before)
	}
	return slots, nil
}

// Next is the ring that Maglev makes, for who asks only for the slots that may
// have changed.
type Next struct {
	rings    []past // now, and before each moment that is not known
	earliest past
	present  set
}

// Next prepares the ring of these members; lived says that it follows another
// one of the same size. If that is known to have been made from the members
// before, and nothing of it was lost, the new one does not look back again on
// what that one did: not on how things would have been if who is gone had never
// been there, either.
func (b *Builder) Next(size int, members, before []Member, lived bool) (*Next, error) {
	rings, earliest, err := b.history(size, members, before, lived)
	if err != nil {
		return nil, err
	}
	return &Next{rings, earliest, newSet(members)}, nil
}

// Slot gives what follows the slot before, nil where there is none.
func (n *Next) Slot(i int, before *Slot) Slot {
	s := Slot{First: n.rings[0].owner(i)}
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

// Always says that this member, and nobody else, owns a slot, now and before
// each moment that is not known. If the slot before is its as well, and names
// nobody who is gone, then it is the one that follows, too.
func (n *Next) Always(i int, id ID) bool {
	for j := range n.rings {
		if n.rings[j].owner(i) != id {
			return false
		}
	}
	return true
}

// Has says whether somebody is among the members.
func (n *Next) Has(id ID) bool { return n.present.has(id) }

// keepFirst sees to it that a slot with more owners than it remembers forgets one
// between rather than the first of all, who had all the flows that there were when
// the changes began.
func (s *Slot) keepFirst(id ID) {
	if id != 0 && id != s.First && s.Older[Depth-1] != 0 && !slices.Contains(s.Older[:], id) {
		s.Older[Depth-1] = id
	}
}

// follow remembers what is present of the slot before, and gives how many that
// are.
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
