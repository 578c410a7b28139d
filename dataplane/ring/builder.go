package ring

import (
	"cmp"
	"container/list"
	"encoding/binary"
	"slices"
	"time"

	"github.com/fairlead/fairlead/maglev"
)

// Builder makes rings and remembers who owns which slot, so that a ring of which
// one member has changed costs one new table and not one for each that it looks
// back on. It is for one goroutine.
type Builder struct {
	room   int                      // slots that may yet be remembered
	tables map[string]*list.Element // of *table
	latest *list.List               // the one last used in front
}

// NewBuilder gives a Builder that remembers tables of so many slots in all, of
// 4 bytes each.
func NewBuilder(slots int) *Builder {
	return &Builder{room: slots, tables: map[string]*list.Element{}, latest: list.New()}
}

// table says for each slot which of some members owns it, in the order of
// addresses.
type table struct {
	key   string
	slots []uint32
}

// past is a table with its members' numbers.
type past struct {
	slots []uint32 // nil where nobody owns any
	ids   []ID
}

func (p past) owner(slot int) ID {
	if p.slots == nil {
		return 0
	}
	return p.ids[p.slots[slot]]
}

// history gives the owners of all slots: now, were nobody draining, and before
// each of the latest joins, were nobody draining and, because some may have
// drained before that join, as they drain now. Of the latter a balancer that
// has lived through the earlier joins needs the latest alone: the rest its
// slots remember where it is true.
func (b *Builder) history(size int, members []Member, lived bool) ([]past, error) {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return a.Addr.Compare(b.Addr) })
	now := func(m Member) uint32 { return m.Weight }
	undrained := undrainedWeight(members)
	drain := slices.ContainsFunc(members, func(m Member) bool { return m.Weight == 0 })
	var rings []past
	for i, its := range append([][]Member{members}, olderMembers(members)...) {
		weights := []func(Member) uint32{now, undrained}
		switch {
		case !drain:
			weights = weights[:1]
		case i > 1 && lived:
			weights = weights[1:]
		}
		for _, weight := range weights {
			r, err := b.owners(size, its, weight)
			if err != nil {
				return nil, err
			}
			rings = append(rings, r)
		}
	}
	return rings, nil
}

// olderMembers gives, for each of the latest times at which members began,
// those that were there before it; and last those that were there at first.
func olderMembers(members []Member) (sets [][]Member) {
	var times []time.Time
	for _, m := range members {
		times = append(times, m.Since)
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	times = slices.CompactFunc(times, time.Time.Equal)
	times = times[:max(0, len(times)-1)] // nobody is older than the oldest
	if len(times) > joins {
		times = append(times[:joins-1:joins-1], times[len(times)-1])
	}
	for _, t := range times {
		older := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !m.Since.Before(t) })
		sets = append(sets, older)
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

// owners gives who owns what with these weights; members are sorted.
func (b *Builder) owners(size int, members []Member, weight func(Member) uint32) (past, error) {
	var backends []maglev.Backend
	var p past
	key := binary.LittleEndian.AppendUint32(nil, uint32(size))
	for _, m := range members {
		w := weight(m)
		if w == 0 {
			continue
		}
		backends = append(backends, maglev.Backend{ID: m.Addr, Weight: w})
		p.ids = append(p.ids, m.ID)
		addr := m.Addr.Addr().As16()
		key = binary.LittleEndian.AppendUint16(append(key, addr[:]...), m.Addr.Port())
		key = binary.LittleEndian.AppendUint32(key, w)
	}
	if known := b.tables[string(key)]; known != nil {
		b.latest.MoveToFront(known)
		p.slots = known.Value.(*table).slots
		return p, nil
	}
	slots, err := maglev.Build(size, backends)
	if err != nil || len(backends) == 0 {
		return past{}, err
	}
	p.slots = slots
	b.remember(&table{string(key), slots})
	return p, nil
}

// remember keeps a table in place of those that were not used for longest.
func (b *Builder) remember(t *table) {
	b.room -= len(t.slots)
	b.tables[t.key] = b.latest.PushFront(t)
	for b.room < 0 {
		oldest := b.latest.Remove(b.latest.Back()).(*table)
		delete(b.tables, oldest.key)
		b.room += len(oldest.slots)
	}
}
