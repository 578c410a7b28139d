package ringmap

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// segment is one of the maps that contain rings, mapped into this process.
type segment struct {
	kernel *ebpf.Map
	id     ebpf.MapID
	words  []uint64
	alloc.Extents
}

// place is the location of a ring.
type place struct {
	segment uint32
	alloc.Extent
}

// memory is that of all rings, or of all lists. Segments are created on demand, and freed when
// they are empty.
type memory struct {
	outer    *ebpf.Map
	spec     *ebpf.MapSpec // of a segment
	segments []*segment    // by index in outer; nil if absent
}

// String is the beginning of errors.
func (m *memory) String() string { return "xdp: memory of " + m.spec.Name }

// word is one slot as the program reads it, with one load: struct ring_slot in
// little-endian order.
func word(first, chain uint32) uint64 { return uint64(first) | uint64(chain)<<32 }

func firstOf(word uint64) uint32 { return uint32(word) }
func chainOf(word uint64) uint32 { return uint32(word >> 32) }

// open maps the kernel's segments, with nothing allocated. It may be called again.
func (m *memory) open() error {
	if m.segments == nil {
		m.segments = make([]*segment, m.outer.MaxEntries())
	}
	for i := range m.segments {
		if err := m.openSegment(uint32(i)); err != nil {
			return fmt.Errorf("%s: segment %d: %w", m, i, err)
		}
	}
	return nil
}

func (m *memory) openSegment(i uint32) error {
	id, err := m.idOf(i)
	if err != nil {
		return err
	}
	if s := m.segments[i]; s != nil {
		if s.id == id {
			s.Extents = m.wholeSegment()
			return nil
		}
		m.segments[i] = nil
		if err := s.close(); err != nil {
			return err
		}
	}
	if id == 0 {
		return nil
	}
	inner, err := ebpf.NewMapFromID(id)
	if err != nil {
		return err
	}
	return m.hold(i, inner)
}

// idOf returns the id of a segment's map in the kernel, 0 if absent.
func (m *memory) idOf(i uint32) (ebpf.MapID, error) {
	var id uint32
	err := bpf.IgnoreAbsent(m.outer.Lookup(i, &id))
	return ebpf.MapID(id), err
}

// has reports whether a place exists for the program.
func (m *memory) has(p place) (bool, error) {
	if p.N == 0 {
		return true, nil
	}
	id, err := m.idOf(p.segment)
	return err == nil && m.at(p) != nil && m.segments[p.segment].id == id, err
}

func (m *memory) wholeSegment() alloc.Extents {
	return alloc.NewExtents(m.spec.MaxEntries)
}

// hold maps a segment's memory.
func (m *memory) hold(i uint32, inner *ebpf.Map) error {
	info, err := inner.Info()
	if err != nil {
		return errors.Join(err, inner.Close())
	}
	id, _ := info.ID()
	words, err := bpf.MapMemory[uint64](inner)
	if err != nil {
		return errors.Join(err, inner.Close())
	}
	m.segments[i] = &segment{kernel: inner, id: id, words: words, Extents: m.wholeSegment()}
	return nil
}

// more is the number of segments by which the memory grows if nothing is known about what
// comes: several at a time, because the kernel waits for all packets in flight at each
// addition.
func (m *memory) more() int {
	used, _ := m.usage()
	return min(1+used/8, 8)
}

// usage returns the number of segments, and of slots that rings have.
func (m *memory) usage() (segments int, slots uint32) {
	for _, s := range m.segments {
		if s != nil {
			segments++
			slots += s.Taken()
		}
	}
	return segments, slots
}

// table returns how full all segments would be.
func (m *memory) table(name string) dataplane.Table {
	_, slots := m.usage()
	return dataplane.Table{Name: name, Used: int(slots), Size: int(m.outer.MaxEntries()) * int(m.spec.MaxEntries)}
}

// grow creates up to that many segments, and waits for packets in flight once.
func (m *memory) grow(more int) error {
	var free []uint32
	for i, s := range m.segments {
		if s == nil {
			free = append(free, uint32(i))
		}
	}
	if len(free) == 0 {
		return fmt.Errorf("%s: all %d segments are in use: use smaller Maglev tables", m, len(m.segments))
	}
	free = free[:min(len(free), more)]
	fds, inner := make([]uint32, len(free)), make([]*ebpf.Map, len(free))
	for i := range free {
		one, err := ebpf.NewMap(m.spec)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: create a segment of %d slots: %w", m, m.spec.MaxEntries, err), closeAll(inner))
		}
		fds[i], inner[i] = uint32(one.FD()), one
	}
	if _, err := m.outer.BatchUpdate(free, fds, nil); err != nil {
		return errors.Join(fmt.Errorf("%s: add a segment: %w", m, err), closeAll(inner))
	}
	for i, n := range free {
		if err := m.hold(n, inner[i]); err != nil {
			return errors.Join(err, closeAll(inner[i+1:]))
		}
	}
	return nil
}

func closeAll(maps []*ebpf.Map) error {
	var errs []error
	for _, m := range maps {
		errs = append(errs, m.Close()) // nil is closed already
	}
	return errors.Join(errs...)
}

// lacking returns how many more segments rings of these sizes need at most.
func (m *memory) lacking(sizes []uint32) (segments int) {
	var room alloc.Extents
	for _, n := range sizes {
		if _, ok := room.Take(n); n == 0 || ok {
			continue
		}
		room = m.wholeSegment()
		room.Take(n)
		segments++
	}
	for _, s := range m.segments {
		if s != nil && s.Taken() == 0 && !s.Resting() {
			segments--
		}
	}
	return max(segments, 0)
}

// take allocates n contiguous slots from the existing segments.
func (m *memory) take(n uint32) (place, bool) {
	for i, s := range m.segments {
		if s == nil {
			continue
		}
		if e, ok := s.Take(n); ok {
			return place{uint32(i), e}, true
		}
	}
	return place{}, false
}

// room allocates n contiguous slots, and makes room if necessary. rouse wakes those that rest.
func (m *memory) room(n uint32, rouse func() error) (place, error) {
	if n == 0 {
		return place{}, nil
	}
	p, ok := m.take(n)
	if !ok && m.resting() {
		if err := rouse(); err != nil {
			return place{}, err
		}
		p, ok = m.take(n)
	}
	if !ok {
		if err := m.grow(m.more()); err != nil {
			return place{}, err
		}
		if p, ok = m.take(n); !ok {
			return place{}, fmt.Errorf("%s: %d words do not fit into a segment", m, n)
		}
	}
	return p, nil
}

// mark takes exactly this place, and reports whether it existed and was free.
func (m *memory) mark(p place) bool {
	return p.N == 0 || m.at(p) != nil && m.segments[p.segment].Mark(p.Extent)
}

func (m *memory) giveBack(p place) {
	if m.at(p) != nil {
		m.segments[p.segment].GiveBack(p.Extent)
	}
}

func (m *memory) resting() bool {
	for _, s := range m.segments {
		if s != nil && s.Resting() {
			return true
		}
	}
	return false
}

// wake makes resting slots available again, and frees the empty segments except one.
func (m *memory) wake() error {
	kept := false
	for i, s := range m.segments {
		if s == nil {
			continue
		}
		s.Wake()
		if s.Taken() > 0 {
			continue
		}
		if !kept {
			kept = true
			continue
		}
		if err := bpf.IgnoreAbsent(m.outer.Delete(uint32(i))); err != nil {
			return fmt.Errorf("%s: free a segment: %w", m, err)
		}
		m.segments[i] = nil
		if err := s.close(); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when all packets that were in flight at the call are done. The kernel
// waits for them after a change to a map of maps, so a segment is replaced by itself
// (kernel/bpf/syscall.c, maybe_wait_bpf_programs).
func (m *memory) wait() error {
	for i, s := range m.segments {
		if s == nil {
			continue
		}
		if err := m.outer.Put(uint32(i), s.kernel); err != nil {
			return fmt.Errorf("%s: wait for packets in flight: %w", m, err)
		}
		return nil
	}
	return fmt.Errorf("%s: no segments", m)
}

// from returns the words from a location to the end of its segment, nil if it does not exist.
func (m *memory) from(l location) []uint64 {
	if int(l.segment) >= len(m.segments) || m.segments[l.segment] == nil || int(l.first) > len(m.segments[l.segment].words) {
		return nil
	}
	return m.segments[l.segment].words[l.first:]
}

// at returns the words of a place, nil if it does not exist.
func (m *memory) at(p place) []uint64 {
	if int(p.segment) >= len(m.segments) || m.segments[p.segment] == nil {
		return nil
	}
	words := m.segments[p.segment].words
	if uint64(p.First)+uint64(p.N) > uint64(len(words)) {
		return nil
	}
	return words[p.First:p.End()]
}

func (s *segment) close() error {
	return errors.Join(bpf.UnmapMemory(s.words), s.kernel.Close())
}

func (m *memory) close() error {
	var errs []error
	for _, s := range m.segments {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	m.segments = nil
	return errors.Join(errs...)
}
