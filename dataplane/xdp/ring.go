package xdp

import (
	"runtime"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// readRing returns a frontend's ring from the kernel, reusing slots if possible.
func (d *DataPlane) readRing(h *programmed, slots []ring.Slot) []ring.Slot {
	if !entry.HasHistory(h.value) {
		return nil
	}
	words := d.ringMemory.at(placeOf(h.value))
	slots = slices.Grow(slots[:0], len(words))[:len(words)]
	for i, w := range words {
		slots[i] = d.slotOf(h, w)
	}
	return slots
}

// slotOf decodes a word of a frontend's ring.
func (d *DataPlane) slotOf(h *programmed, w uint64) ring.Slot {
	s := ring.Slot{First: firstOf(w)}
	if n := chainOf(w); n != 0 && entry.HasChains(h.value) {
		s.Older = older(d.chains.of(n), s.First)
	}
	return s
}

// older returns a chain's owners without the slot's own first, which is at the end for
// UDP.
func older(owners chainOwners, first ring.ID) chainOwners {
	for i, id := range owners {
		if id == first {
			owners[i] = 0
		}
	}
	return owners
}

// renumber replaces a ring's server numbers by the current ones, with 0 for former
// members.
func renumber(slots []ring.Slot, before, after members) {
	if sameNumbers(before, after) {
		return // ring.For itself removes former members
	}
	to := map[ring.ID]ring.ID{0: 0}
	for _, m := range before {
		if now := after.find(m.key.addr); now != nil {
			to[m.id] = now.id
		}
	}
	for i := range slots {
		s := &slots[i]
		s.First = to[s.First]
		past := s.Older
		s.Older = chainOwners{}
		n := 0
		for _, id := range past {
			if to[id] != 0 {
				s.Older[n] = to[id]
				n++
			}
		}
	}
}

// sameNumbers reports whether all remaining members keep their number.
func sameNumbers(before, after members) bool {
	for _, m := range before {
		if now := after.find(m.key.addr); now != nil && now.id != m.id {
			return false
		}
	}
	return true
}

// allStay reports whether all members of before are also in after.
func allStay(before, after members) bool {
	return !slices.ContainsFunc(before, func(m member) bool { return after.find(m.key.addr) == nil })
}

// follow returns the slots that change in the next ring, which has the same place. The
// result is valid until the next call. New chains are allocated. If all servers stay, no
// chain contains a former one.
func (d *DataPlane) follow(h *programmed, allStay bool, next *ring.Next) []slotWord {
	now := d.ringMemory.at(placeOf(h.value))
	d.moving = slices.Grow(d.moving, runtime.GOMAXPROCS(0)-len(d.moving))[:runtime.GOMAXPROCS(0)]
	parts := d.moving
	var all sync.WaitGroup
	for i := range parts {
		from, to := len(now)*i/len(parts), len(now)*(i+1)/len(parts)
		all.Go(func() { parts[i] = d.moved(parts[i][:0], h, now[:to], from, allStay, next) })
	}
	all.Wait()
	d.changed = d.changed[:0]
	for _, part := range parts {
		for _, m := range part {
			w, fresh := now[m.at], word(m.slot.First, 0)
			if entry.HasChains(h.value) {
				fresh = word(m.slot.First, d.takeChain(&m.slot, h.key.Protocol))
			}
			if fresh != w {
				d.changed = append(d.changed, slotWord{m.at, fresh})
			} else if entry.HasChains(h.value) {
				d.chains.release(chainOf(w)) // the slot had it already
			}
		}
	}
	return d.changed
}

// movedSlot is a slot that differs in the next ring.
type movedSlot struct {
	at   uint32
	slot ring.Slot
}

// moved appends those of a part of a ring to all, and changes nothing else. Nearly all
// slots are only checked, and stay the same.
func (d *DataPlane) moved(all []movedSlot, h *programmed, now []uint64, from int, allStay bool, next *ring.Next) []movedSlot {
	whole := allStay || !entry.HasChains(h.value)
	var kept func(uint32) bool
	if !whole {
		kept = d.chains.whole(next.Has)
	}
	for i := from; i < len(now); i++ {
		w := now[i]
		if next.Always(i, firstOf(w)) && (whole || kept(chainOf(w))) {
			continue
		}
		before := d.slotOf(h, w)
		if s := next.Slot(i, &before); s != before {
			all = append(all, movedSlot{uint32(i), s})
		}
	}
	return all
}

// layRing returns the words of a frontend's slots, valid until the next call. It
// allocates chains for all of them.
func (d *DataPlane) layRing(h *programmed, slots []ring.Slot) []uint64 {
	d.words = slices.Grow(d.words[:0], len(slots))[:len(slots)]
	words := d.words
	switch {
	case entry.HasWeights(h.value):
		weights := map[ring.ID]uint32{}
		for _, m := range h.members {
			weights[m.id] = m.weight
		}
		for i, s := range slots {
			words[i] = word(s.First, weights[s.First])
		}
	case entry.HasChains(h.value):
		for i := range slots {
			words[i] = word(slots[i].First, d.takeChain(&slots[i], h.key.Protocol))
		}
	default:
		for i, s := range slots {
			words[i] = word(s.First, 0)
		}
	}
	return words
}

// differing returns the words that differ from those now in place.
func (d *DataPlane) differing(h *programmed, now, words []uint64) (changed []slotWord) {
	for i, w := range words {
		if w != now[i] {
			changed = append(changed, slotWord{uint32(i), w})
		} else if entry.HasChains(h.value) {
			d.chains.release(chainOf(w)) // the slot had it already
		}
	}
	return changed
}

// takeChain returns the number of a slot's chain.
func (d *DataPlane) takeChain(s *ring.Slot, p service.Protocol) uint32 {
	if s.Older[0] == 0 {
		return 0
	}
	owners := s.Older
	if p == service.UDP {
		owners = chainOwners{}
		copy(owners[:], s.Chain(p))
	}
	return d.chains.take(owners)
}

// releaseChains releases the chains of slots that had these words.
func (d *DataPlane) releaseChains(v bpf.BalancerFrontend, words []uint64) {
	if !entry.HasChains(v) {
		return
	}
	for _, w := range words {
		d.chains.release(chainOf(w))
	}
}
