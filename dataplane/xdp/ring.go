package xdp

import (
	"slices"

	"github.com/fairlead/fairlead/dataplane/ring"
	"github.com/fairlead/fairlead/service"
)

// readRing gives a frontend's ring as the kernel has it, in a memory that is
// there for it, or in another.
func (d *DataPlane) readRing(h *held, slots []ring.Slot) []ring.Slot {
	if !hasHistory(h.value) {
		return nil
	}
	words := d.ringMemory.at(placeOf(h.value))
	chains := hasChains(h.value)
	slots = slices.Grow(slots[:0], len(words))[:len(words)]
	for i, w := range words {
		slots[i] = ring.Slot{First: firstOf(w)}
		if n := chainOf(w); chains && n != 0 {
			slots[i].Older = older(d.chains.of(n), slots[i].First)
		}
	}
	return slots
}

// older gives a chain's owners without the slot's own first, which stands at
// its end where the protocol is UDP.
func older(owners chainOwners, first ring.ID) chainOwners {
	for i, id := range owners {
		if id == first {
			owners[i] = 0
		}
	}
	return owners
}

// renumber gives a ring the numbers that its servers have now; those that are
// no members any more are nobody.
func renumber(slots []ring.Slot, before, after members) {
	to := map[ring.ID]ring.ID{0: 0}
	same := true
	for _, m := range before {
		if now := after.find(m.key.addr); now != nil {
			to[m.id] = now.id
			same = same && now.id == m.id
		}
	}
	if same {
		return // ring.For itself leaves out who is gone
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

// layRing gives the words of a frontend's slots, until it is called again. now are those in the place
// that it is to have, or nil: where a slot stays as it was (prev), so does its
// word. Chains that are new are taken for the slots.
func (d *DataPlane) layRing(h *held, prev, slots []ring.Slot, now []uint64) []uint64 {
	d.words = slices.Grow(d.words[:0], len(slots))[:len(slots)]
	words := d.words
	switch {
	case hasWeights(h.value):
		weights := map[ring.ID]uint32{}
		for _, m := range h.members {
			weights[m.id] = m.weight
		}
		for i, s := range slots {
			words[i] = word(s.First, weights[s.First])
		}
	case hasChains(h.value):
		for i := range slots {
			if now != nil && slots[i] == prev[i] {
				words[i] = now[i]
				continue
			}
			words[i] = word(slots[i].First, d.takeChain(&slots[i], h.key.Protocol))
			if now != nil && words[i] == now[i] {
				d.chains.release(chainOf(now[i])) // the slot had it already
			}
		}
	default:
		for i, s := range slots {
			words[i] = word(s.First, 0)
		}
	}
	return words
}

// takeChain gives the number of a slot's chain.
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

// releaseChains says that there are slots no longer that held these words.
func (d *DataPlane) releaseChains(v balancerFrontend, words []uint64) {
	if !hasChains(v) {
		return
	}
	for _, w := range words {
		d.chains.release(chainOf(w))
	}
}
