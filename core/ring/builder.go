package ring

import (
	"container/list"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/maglev"
)

// Builder makes rings and remembers who owns which slot, so that a ring of which
// one member has changed costs one new table and not one for each that it looks
// back on. It is for one goroutine.
type Builder struct {
	room   int                      // slots that may yet be remembered
	tables map[string]*list.Element // of *table
	latest *list.List               // the one last used in front
	spare  []Slot                   // for the next ring
}

// Reuse gives the Builder the slots of a ring that nobody uses any more, for the next.
func (b *Builder) Reuse(slots []Slot) { b.spare = slots }

// take gives slots for a ring, of any content.
func (b *Builder) take(size int) []Slot {
	slots := b.spare
	if b.spare = nil; cap(slots) < size {
		return make([]Slot, size)
	}
	return slots[:size]
}

// NewBuilder gives a Builder that remembers tables of so many slots in all, of
// 4 bytes each.
func NewBuilder(slots int) *Builder {
	return &Builder{room: slots, tables: map[string]*list.Element{}, latest: list.New()}
}

// table says for each slot which of some members owns it, in the order of
// addresses.
type table struct {
	key      string
	slots    []uint32
	backends []maglev.Backend // until it is made
	err      error
}

// past is a table with its members' numbers.
type past struct {
	slots []uint32 // nil where nobody owns any
	ids   []ID
}

func (p *past) owner(slot int) ID {
	if p.slots == nil {
		return 0
	}
	return p.ids[p.slots[slot]]
}

// view is how members stood at a moment: what weight each had.
type view func(*Member) uint32

// views gives how members stand now, and stood before each of the latest moments
// at which any began or drained. Of members that drain since nobody knows when,
// some may have drained before a moment and some after: there is one of all of the
// one and one of all of the other. Of the former a balancer that has lived through
// the earlier moments needs the latest alone: the rest its slots remember where it
// is true.
func views(members []Member, lived bool) (all []view) {
	greatest := uint32(1) // what a draining member had is no longer known
	for _, m := range members {
		greatest = max(greatest, m.Weight)
	}
	unknown := slices.ContainsFunc(members, func(m Member) bool { return m.Weight == 0 && m.Drained.IsZero() })
	// The zero moment is now.
	for i, t := range append([]time.Time{{}}, moments(members)...) {
		for _, before := range []bool{true, false} { // did those of whom it is not known drain before
			if !before && !unknown || before && unknown && i > 1 && lived {
				continue
			}
			all = append(all, func(m *Member) uint32 { return weightBefore(m, t, before, greatest) })
		}
	}
	return all
}

// history gives the owners of all slots in each view of the members, the present
// one first, that the members before had not, but for who is gone; and those in
// the earliest view of all.
func (b *Builder) history(size int, members, before []Member, lived bool) (rings []past, earliest past, err error) {
	members = sorted(members)
	seen := seenBefore(size, members, before, lived)
	var tables []*table
	lacking := map[string]*table{}
	all, fresh := views(members, lived), 0
	for i, v := range all {
		key := keyOf(size, members, v)
		known := i > 0 && seen[key]
		if known && i < len(all)-1 {
			continue
		}
		tables, rings = append(tables, b.table(key, v, members, lacking)), append(rings, past{ids: v.taking(members)})
		if !known {
			fresh = len(rings)
		}
	}
	if err := b.fill(size, lacking); err != nil {
		return nil, past{}, err
	}
	for i, t := range tables {
		rings[i].slots = t.slots
	}
	return rings[:fresh], rings[len(rings)-1], nil
}

// seenBefore gives the keys of the tables that the ring before was made from, but
// for who is gone. Of how things would have been without those, its slots know
// better: they know how things were.
func seenBefore(size int, members, before []Member, lived bool) map[string]bool {
	seen := map[string]bool{}
	before = sorted(before)
	stood := views(before, lived)
	before = slices.DeleteFunc(before, func(m Member) bool {
		_, stays := slices.BinarySearchFunc(members, m, byAddress)
		return !stays
	})
	for _, v := range stood {
		seen[keyOf(size, before, v)] = true
	}
	return seen
}

func byAddress(a, b Member) int { return a.Addr.Compare(b.Addr) }

func sorted(members []Member) []Member {
	members = slices.Clone(members)
	slices.SortFunc(members, byAddress)
	return members
}

// fill makes tables, each on a processor of its own where there are so many, and
// remembers them.
func (b *Builder) fill(size int, lacking map[string]*table) error {
	var all sync.WaitGroup
	for _, t := range lacking {
		all.Go(func() { t.slots, t.err = maglev.Build(size, t.backends) })
	}
	all.Wait()
	for _, key := range slices.Sorted(maps.Keys(lacking)) { // the same ones are forgotten every time
		t := lacking[key]
		if t.err != nil {
			return t.err
		}
		t.backends = nil
		b.remember(t)
	}
	return nil
}

// weightBefore gives the weight that a member had before a moment, zero for
// now; unknown says whether it had drained where nobody knows when it did.
func weightBefore(m *Member, t time.Time, unknown bool, greatest uint32) uint32 {
	switch {
	case !t.IsZero() && !m.Since.Before(t):
		return 0 // not there yet
	case m.Weight > 0:
		return m.Weight
	case m.Drained.IsZero() && unknown, !m.Drained.IsZero() && (t.IsZero() || m.Drained.Before(t)):
		return 0
	}
	return greatest
}

// moments gives the latest times at which members began or drained, the latest
// first, and the first time at which any came to others.
func moments(members []Member) []time.Time {
	var began, drained []time.Time
	for _, m := range members {
		began = append(began, m.Since)
		if m.Weight == 0 && !m.Drained.IsZero() {
			drained = append(drained, m.Drained)
		}
	}
	began, drained = latestFirst(began), latestFirst(drained)
	began = began[:max(0, len(began)-1)] // nobody is older than the oldest
	if len(began) > joins {
		began = append(began[:joins-1:joins-1], began[len(began)-1])
	}
	return latestFirst(append(began, drained[:min(len(drained), drains)]...))
}

// latestFirst sorts times, each once.
func latestFirst(times []time.Time) []time.Time {
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	return slices.CompactFunc(times, time.Time.Equal)
}

// keyOf gives what a table depends on in a view of the members, which are sorted.
func keyOf(size int, members []Member, v view) string {
	key := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+22*len(members)), uint32(size))
	for i := range members {
		m := &members[i]
		if w := v(m); w > 0 {
			addr := m.Addr.Addr().As16()
			key = binary.LittleEndian.AppendUint16(append(key, addr[:]...), m.Addr.Port())
			key = binary.LittleEndian.AppendUint32(key, w)
		}
	}
	return string(key)
}

// taking gives the numbers of those that own any slots.
func (v view) taking(members []Member) []ID {
	ids := make([]ID, 0, len(members))
	for i := range members {
		if v(&members[i]) > 0 {
			ids = append(ids, members[i].ID)
		}
	}
	return ids
}

// backends gives those themselves.
func (v view) backends(members []Member) (all []maglev.Backend) {
	for i := range members {
		if w := v(&members[i]); w > 0 {
			all = append(all, maglev.Backend{ID: members[i].Addr, Weight: w})
		}
	}
	return all
}

// table gives who owns what. A table that is not known is added to those that are
// lacking.
func (b *Builder) table(key string, v view, members []Member, lacking map[string]*table) *table {
	if known := b.tables[key]; known != nil {
		b.latest.MoveToFront(known)
		return known.Value.(*table)
	}
	t := lacking[key]
	if t == nil {
		t = &table{key: key, backends: v.backends(members)}
		if len(t.backends) > 0 {
			lacking[key] = t
		}
	}
	return t
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
