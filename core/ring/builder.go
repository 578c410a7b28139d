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

// Builder builds rings and caches who owns which slot, so that a ring in which one member
// has changed costs one new table instead of one per moment that it looks back on. It is
// not safe for concurrent use.
type Builder struct {
	room   int                      // slots that may still be cached
	tables map[string]*list.Element // of *table
	latest *list.List               // most recently used first
}

// NewBuilder returns a Builder that caches tables of that many slots in total, 4 bytes
// each.
func NewBuilder(slots int) *Builder {
	return &Builder{room: slots, tables: map[string]*list.Element{}, latest: list.New()}
}

// table maps each slot to its owner among some members, which are in address order.
type table struct {
	key      string
	slots    []uint32
	backends []maglev.Backend // until the table is built
	err      error
}

// past is a table with its members' IDs.
type past struct {
	slots []uint32 // nil if there is no owner
	ids   []ID
}

func (p *past) owner(slot int) ID {
	if p.slots == nil {
		return 0
	}
	return p.ids[p.slots[slot]]
}

// view is the state of the members at a moment: the weight of each.
type view func(*Member) uint32

// views returns the state of the members now, and before each of the latest moments at
// which any of them began or drained. If some have been draining since an unknown time,
// they may have drained before or after a moment, so there are two views: one in which
// all of them had, and one in which none had. Of the former, a load balancer that has
// lived through the earlier moments only needs the latest: its slots remember the rest
// where it applies.
func views(members []Member, lived bool) (all []view) {
	greatest := uint32(1) // the weight of a draining member before it drained is no longer known
	for _, m := range members {
		greatest = max(greatest, m.Weight)
	}
	unknown := slices.ContainsFunc(members, func(m Member) bool { return m.Weight == 0 && m.Drained.IsZero() })
	// The zero moment means now.
	for i, t := range append([]time.Time{{}}, moments(members)...) {
		for _, before := range []bool{true, false} { // whether members with an unknown drain time drained before
			if !before && !unknown || before && unknown && i > 1 && lived {
				continue
			}
			all = append(all, func(m *Member) uint32 { return weightBefore(m, t, before, greatest) })
		}
	}
	return all
}

// history returns the owners of all slots in each view of the members, the present one
// first, leaving out views that the members before (without those that were removed) had
// already; and the owners in the earliest view.
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

// seenBefore returns the keys of the tables from which the previous ring was built,
// without the members that were removed. The ring's slots already know better than a
// recalculation without those members: they record what was actually the case.
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

// Ahead builds and caches the tables of several rings that follow none, so that Next finds
// them: together, they use all CPUs.
func (b *Builder) Ahead(size int, rings [][]Member) error {
	lacking := map[string]*table{}
	for _, members := range rings {
		members = sorted(members)
		for _, v := range views(members, false) {
			b.table(keyOf(size, members, v), v, members, lacking)
		}
	}
	return b.fill(size, lacking)
}

// fill builds tables, in parallel, and caches them.
func (b *Builder) fill(size int, lacking map[string]*table) error {
	var all sync.WaitGroup
	for _, t := range lacking {
		build := func() { t.slots, t.err = maglev.Build(size, t.backends) }
		if len(lacking) == 1 {
			build() // a goroutine costs a tenth of this
		} else {
			all.Go(build)
		}
	}
	all.Wait()
	for _, key := range slices.Sorted(maps.Keys(lacking)) { // for a deterministic eviction order
		t := lacking[key]
		if t.err != nil {
			return t.err
		}
		t.backends = nil
		b.remember(t)
	}
	return nil
}

// weightBefore returns the weight of a member before a moment, where the zero time means
// now. unknown says whether a member with an unknown drain time counts as drained.
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

// moments returns the latest times at which members began or drained, latest first, and
// the first time at which any member joined others.
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

// latestFirst sorts times, latest first, without duplicates.
func latestFirst(times []time.Time) []time.Time {
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	return slices.CompactFunc(times, time.Time.Equal)
}

// keyOf returns everything that a table depends on in a view of the members, which are
// sorted.
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

// taking returns the IDs of the members that own slots.
func (v view) taking(members []Member) []ID {
	ids := make([]ID, 0, len(members))
	for i := range members {
		if v(&members[i]) > 0 {
			ids = append(ids, members[i].ID)
		}
	}
	return ids
}

// backends returns the members that own slots.
func (v view) backends(members []Member) (all []maglev.Backend) {
	for i := range members {
		if w := v(&members[i]); w > 0 {
			all = append(all, maglev.Backend{ID: members[i].Addr, Weight: w})
		}
	}
	return all
}

// table returns the slot owners. If the table is not cached, it adds it to lacking.
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

// remember caches a table and evicts the least recently used ones.
func (b *Builder) remember(t *table) {
	b.room -= len(t.slots)
	b.tables[t.key] = b.latest.PushFront(t)
	for b.room < 0 {
		oldest := b.latest.Remove(b.latest.Back()).(*table)
		delete(b.tables, oldest.key)
		b.room += len(oldest.slots)
	}
}
