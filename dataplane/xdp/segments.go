package xdp

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// segment is one of the maps that rings lie in, mapped into this process.
type segment struct {
	kernel *ebpf.Map
	id     ebpf.MapID
	words  []uint64
	extents
}

// place is where a ring lies.
type place struct {
	segment uint32
	extent
}

func placeOf(v balancerFrontend) place { return place{v.Segment, extent{v.Slot, v.Slots}} }

// ringMemory is the memory of all rings. Segments are made when they are
// needed, and given back to the kernel when nothing is left in them.
type ringMemory struct {
	outer    *ebpf.Map
	spec     *ebpf.MapSpec // of a segment
	segments []*segment    // by index in outer; nil where there is none
}

// word is one slot as the program reads it, in one go: struct ring_slot of a
// machine that begins with the low byte.
func word(first, chain uint32) uint64 { return uint64(first) | uint64(chain)<<32 }

func firstOf(word uint64) uint32 { return uint32(word) }
func chainOf(word uint64) uint32 { return uint32(word >> 32) }

// open maps the segments that the kernel has, with nothing taken, and sees that
// there is one. It may be called again.
func (m *ringMemory) open() error {
	if m.segments == nil {
		m.segments = make([]*segment, m.outer.MaxEntries())
	}
	any := false
	for i := range m.segments {
		if err := m.openSegment(uint32(i)); err != nil {
			return fmt.Errorf("xdp: ring memory: segment %d: %w", i, err)
		}
		any = any || m.segments[i] != nil
	}
	if !any {
		return m.grow()
	}
	return nil
}

func (m *ringMemory) openSegment(i uint32) error {
	id, err := m.idOf(i)
	if err != nil {
		return err
	}
	if s := m.segments[i]; s != nil {
		if s.id == id {
			s.extents = m.wholeSegment()
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

// idOf asks the kernel which map a segment is, 0 for none.
func (m *ringMemory) idOf(i uint32) (ebpf.MapID, error) {
	var id uint32
	if err := m.outer.Lookup(i, &id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, err
	}
	return ebpf.MapID(id), nil
}

// has says whether a place is really there for the program.
func (m *ringMemory) has(p place) (bool, error) {
	if p.n == 0 {
		return true, nil
	}
	id, err := m.idOf(p.segment)
	return err == nil && m.at(p) != nil && m.segments[p.segment].id == id, err
}

func (m *ringMemory) wholeSegment() extents {
	return extents{free: []extent{{0, m.spec.MaxEntries}}}
}

// hold maps a segment's memory.
func (m *ringMemory) hold(i uint32, inner *ebpf.Map) error {
	info, err := inner.Info()
	if err != nil {
		return errors.Join(err, inner.Close())
	}
	id, _ := info.ID()
	n := int(inner.MaxEntries())
	memory, err := unix.Mmap(inner.FD(), 0, n*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return errors.Join(fmt.Errorf("map it into memory: %w", err), inner.Close())
	}
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), n)
	m.segments[i] = &segment{kernel: inner, id: id, words: words, extents: m.wholeSegment()}
	return nil
}

// grow makes more segments: some at once, because the kernel makes each addition
// wait for all packets on their way.
func (m *ringMemory) grow() error {
	var free []uint32
	for i, s := range m.segments {
		if s == nil {
			free = append(free, uint32(i))
		}
	}
	if len(free) == 0 {
		return fmt.Errorf("xdp: ring memory: all %d segments are in use: ask for smaller rings", len(m.segments))
	}
	free = free[:min(len(free), 1+(len(m.segments)-len(free))/8, 8)]
	fds, inner := make([]uint32, len(free)), make([]*ebpf.Map, len(free))
	for i := range free {
		one, err := ebpf.NewMap(m.spec)
		if err != nil {
			return errors.Join(fmt.Errorf("xdp: ring memory: make a segment of %d slots: %w", m.spec.MaxEntries, err), closeAll(inner))
		}
		fds[i], inner[i] = uint32(one.FD()), one
	}
	if _, err := m.outer.BatchUpdate(free, fds, nil); err != nil {
		return errors.Join(fmt.Errorf("xdp: ring memory: add a segment: %w", err), closeAll(inner))
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

// take gives n places in a row, without making any.
func (m *ringMemory) take(n uint32) (place, bool) {
	for i, s := range m.segments {
		if s == nil {
			continue
		}
		if e, ok := s.take(n); ok {
			return place{uint32(i), e}, true
		}
	}
	return place{}, false
}

// mark takes just this place, and says whether it was there and free.
func (m *ringMemory) mark(p place) bool {
	return p.n == 0 || m.at(p) != nil && m.segments[p.segment].mark(p.extent)
}

func (m *ringMemory) giveBack(p place) {
	if m.at(p) != nil {
		m.segments[p.segment].giveBack(p.extent)
	}
}

func (m *ringMemory) resting() bool {
	for _, s := range m.segments {
		if s != nil && len(s.extents.resting) > 0 {
			return true
		}
	}
	return false
}

// wake lets what rests be used again, and gives back the segments that are
// empty, but for one.
func (m *ringMemory) wake() error {
	kept := false
	for i, s := range m.segments {
		if s == nil {
			continue
		}
		s.wake()
		if len(s.free) != 1 || s.free[0].n != m.spec.MaxEntries {
			continue
		}
		if !kept {
			kept = true
			continue
		}
		if err := m.outer.Delete(uint32(i)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("xdp: ring memory: give a segment back: %w", err)
		}
		m.segments[i] = nil
		if err := s.close(); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when no packet is on its way any more that began before. The
// kernel waits so after a change to a map of maps, so a segment is put where it
// already is (kernel/bpf/syscall.c, maybe_wait_bpf_programs).
func (m *ringMemory) wait() error {
	for i, s := range m.segments {
		if s == nil {
			continue
		}
		if err := m.outer.Put(uint32(i), s.kernel); err != nil {
			return fmt.Errorf("xdp: ring memory: wait for packets on their way: %w", err)
		}
		return nil
	}
	return errors.New("xdp: ring memory: there is none")
}

// at gives the slots of a place; nil where it is not a place.
func (m *ringMemory) at(p place) []uint64 {
	if int(p.segment) >= len(m.segments) || m.segments[p.segment] == nil {
		return nil
	}
	words := m.segments[p.segment].words
	if uint64(p.first)+uint64(p.n) > uint64(len(words)) {
		return nil
	}
	return words[p.first:p.end()]
}

// slotWord is a word and the slot of a ring that it is for.
type slotWord struct {
	slot uint32
	word uint64
}

// write makes the slots of a place that nobody looks up these.
func (m *ringMemory) write(p place, words []uint64) {
	now := m.at(p)
	for i, w := range words {
		atomic.StoreUint64(&now[i], w)
	}
}

// change makes some slots others, one after the other: traffic sees each either
// as it was or as it is to be. It gives the words that were replaced.
func (m *ringMemory) change(p place, changed []slotWord) (replaced []uint64) {
	now := m.at(p)
	replaced = make([]uint64, len(changed))
	for i, c := range changed {
		replaced[i] = now[c.slot]
		atomic.StoreUint64(&now[c.slot], c.word)
	}
	return replaced
}

func (s *segment) close() error {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s.words))), len(s.words)*8)
	return errors.Join(unix.Munmap(bytes), s.kernel.Close())
}

func (m *ringMemory) close() error {
	var errs []error
	for _, s := range m.segments {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	m.segments = nil
	return errors.Join(errs...)
}
