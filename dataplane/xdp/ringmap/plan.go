package ringmap

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// Request describes the next ring of a frontend.
type Request struct {
	Ring                  // its entry, without a location
	Members []ring.Member // by address
	// Before is the frontend's current ring, nil without one.
	Before *Existing
	// EntryStays reports that only the ring changes: it may overwrite Before.
	EntryStays bool
	// Past, if not nil, is the ring of a predecessor: the new one is derived from it
	// instead of Before.
	Past []ring.Slot
}

// Existing is a ring that another one replaces.
type Existing struct {
	Ring
	Members []ring.Member // by address
	// Made reports that this process made the ring from these members.
	Made bool
}

// Scratch is the memory of one layout, to be reused by the next: a Plan is valid until Lay
// is called again with the same Scratch. Its content has no meaning between calls.
type Scratch struct {
	words   []uint64
	moved   [][]movedSlot
	changed []slotWord
}

// Plan is a ring that is laid out: it has a place and chains in this process's memory, and
// packets do not see it yet.
type Plan struct {
	rings   *Rings
	ring    Ring
	before  *Ring // the ring that it replaces, nil without one
	inPlace bool
	words   []uint64   // the whole ring, if it is elsewhere than before
	changed []slotWord // its changed slots, if it is in place
	fresh   []uint32   // its chains that are not written yet
}

// Lay lays out a ring. It writes nothing that packets look up; without room it waits for
// packets in flight, or adds memory. After an error, nothing is taken.
func (r *Rings) Lay(q Request, s *Scratch) (*Plan, error) {
	c, err := r.content(&q)
	if err != nil {
		return nil, err
	}
	p := &Plan{rings: r, ring: q.Ring}
	if q.Before != nil {
		p.before = &q.Before.Ring
	}
	if p.inPlace = r.fits(&q, c.size); p.inPlace {
		setLocation(&p.ring.Entry, q.Before.Entry)
		p.change(c, s)
		return p, nil
	}
	to, err := r.take(uint32(c.size))
	if err != nil {
		return nil, err
	}
	p.ring.Entry.Segment, p.ring.Entry.Slot, p.ring.Entry.Slots = to.segment, to.First, to.N
	p.fill(c, s)
	return p, nil
}

// Remove returns a plan that only removes a ring.
func (r *Rings) Remove(old Ring) *Plan { return &Plan{rings: r, before: &old} }

// fits reports whether a ring of this size can overwrite the one before.
func (r *Rings) fits(q *Request, size int) bool {
	return q.EntryStays && int(q.Before.Entry.Slots) == size && r.words(q.Before.Ring) != nil
}

func setLocation(v *bpf.BalancerFrontend, at bpf.BalancerFrontend) {
	v.Segment, v.Slot, v.Slots = at.Segment, at.Slot, at.Slots
}

// Locate sets the location of the ring in a frontend's entry.
func (p *Plan) Locate(v *bpf.BalancerFrontend) { setLocation(v, p.ring.Entry) }

// InPlace reports whether the ring overwrites the one before.
func (p *Plan) InPlace() bool { return p.inPlace }

// Write writes what no packet looks up yet: chains, and a ring that is not in place. addr
// returns the address of a server.
func (p *Plan) Write(addr func(ring.ID) netip.AddrPort) error {
	if err := p.rings.chains.write(p.rings.maps.Chains, p.fresh, addr); err != nil {
		return err
	}
	now := p.rings.words(p.ring)
	for i, w := range p.words {
		atomic.StoreUint64(&now[i], w)
	}
	return nil
}

// Commit changes a ring in place, one slot after the other: traffic sees each either before
// or after the change.
func (p *Plan) Commit() {
	now := p.rings.words(p.ring)
	for i, c := range p.changed {
		p.changed[i].word = now[c.slot] // which Finish releases
		atomic.StoreUint64(&now[c.slot], c.word)
	}
}

// Finish releases what only the ring before used. It rests until Wake.
func (p *Plan) Finish() {
	switch {
	case p.inPlace:
		for _, c := range p.changed {
			p.rings.releaseChain(p.ring, c.word)
		}
	case p.before != nil:
		for _, w := range p.rings.words(*p.before) {
			p.rings.releaseChain(*p.before, w)
		}
		p.rings.memory.giveBack(p.before.place())
	}
}

// content computes the slots of a ring.
type content struct {
	size    int
	slots   []ring.Slot              // of a scheduler that does not hash; else
	next    *ring.Next               // the next ring,
	before  func(slot int) ring.Slot // which follows this one, nil without one
	follows bool                     // that is the one in place, with the same numbers
	allStay bool                     // and all its members
	weights map[ring.ID]uint32       // if slots contain weights
}

func (r *Rings) content(q *Request) (c content, err error) {
	if entry.HasWeights(q.Entry) {
		c.weights = make(map[ring.ID]uint32, len(q.Members))
		for _, m := range q.Members {
			c.weights[m.ID] = m.Weight
		}
	}
	if !entry.HasHistory(q.Entry) {
		c.slots, err = r.builder.For(entry.Scheduler(q.Entry.Scheduler), nil, 0, q.Members, nil)
		c.size = len(c.slots)
		return c, err
	}
	c.size = int(q.Entry.RingSize)
	var known []ring.Member
	if q.Past != nil {
		c.before = pastRing(q.Past, c.size)
	} else if q.Before != nil {
		to, allStay := renumbering(q.Before.Members, q.Members)
		c.before = r.ringBefore(q.Before.Ring, c.size, to)
		c.follows, c.allStay = to == nil && r.fits(q, c.size), allStay
		if c.follows && q.Before.Made && r.Lacking() == 0 { // else slots have incomplete chains
			known = q.Before.Members
		}
	}
	c.next, err = r.builder.Next(c.size, q.Members, known, c.before != nil)
	return c, err
}

// pastRing returns the slots of a ring of the same size.
func pastRing(slots []ring.Slot, size int) func(int) ring.Slot {
	if len(slots) != size {
		return nil
	}
	return func(i int) ring.Slot { return slots[i] }
}

// ringBefore returns the slots of a ring in the kernel of the same size, with other numbers.
func (r *Rings) ringBefore(of Ring, size int, to map[ring.ID]ring.ID) func(int) ring.Slot {
	now := r.words(of)
	if !entry.HasHistory(of.Entry) || len(now) != size {
		return nil
	}
	if to == nil {
		return func(i int) ring.Slot { return r.slotOf(of, now[i]) }
	}
	return func(i int) ring.Slot { return renumber(r.slotOf(of, now[i]), to) }
}

// renumbering returns the new numbers of members, nil if all that stay retain theirs. It
// reports whether all of them stay.
func renumbering(before, after []ring.Member) (to map[ring.ID]ring.ID, allStay bool) {
	all, same := make(map[ring.ID]ring.ID, len(before)), true
	for _, m := range before {
		at, stays := slices.BinarySearchFunc(after, m, func(a, b ring.Member) int { return a.Addr.Compare(b.Addr) })
		if stays {
			all[m.ID] = after[at].ID
			same = same && m.ID == after[at].ID
		}
	}
	if allStay = len(all) == len(before); same {
		return nil, allStay
	}
	return all, allStay
}

// renumber replaces the numbers in a slot, without former members.
func renumber(s ring.Slot, to map[ring.ID]ring.ID) ring.Slot {
	t, n := ring.Slot{First: to[s.First]}, 0
	for _, id := range s.Older {
		if to[id] != 0 {
			t.Older[n] = to[id]
			n++
		}
	}
	return t
}

func (c *content) slot(i int) ring.Slot {
	switch {
	case c.next == nil:
		return c.slots[i]
	case c.before == nil:
		return c.next.Slot(i, nil)
	}
	before := c.before(i)
	return c.next.Slot(i, &before)
}

// encode returns the word of a slot. It takes a chain for it.
func (p *Plan) encode(c *content, s *ring.Slot) uint64 {
	switch {
	case c.weights != nil:
		return word(s.First, c.weights[s.First])
	case p.ring.chained() && s.Older[0] != 0:
		return word(s.First, p.rings.chains.take(chainFor(s, p.ring.Protocol), &p.fresh))
	}
	return word(s.First, 0)
}

// chainFor returns the owners in a slot's chain.
func chainFor(s *ring.Slot, p service.Protocol) chainOwners {
	owners := s.Older
	if p == service.UDP {
		owners = chainOwners{}
		copy(owners[:], s.Chain(p))
	}
	return owners
}

// fill encodes the whole ring.
func (p *Plan) fill(c content, s *Scratch) {
	s.words = slices.Grow(s.words[:0], c.size)[:c.size]
	for i := range s.words {
		slot := c.slot(i)
		s.words[i] = p.encode(&c, &slot)
	}
	p.words = s.words
}

// slotWord is a new word for a slot of a ring.
type slotWord struct {
	slot uint32
	word uint64
}

// movedSlot is a slot that differs in the next ring.
type movedSlot struct {
	at   uint32
	slot ring.Slot
}

// partSlots is the least number of slots that a goroutine compares.
const partSlots = 1024

// change encodes the slots that differ from those in place.
func (p *Plan) change(c content, s *Scratch) {
	now := p.rings.words(p.ring)
	n := min(runtime.GOMAXPROCS(0), 1+c.size/partSlots)
	s.moved = slices.Grow(s.moved, max(0, n-len(s.moved)))[:max(n, len(s.moved))]
	parts := s.moved[:n]
	var all sync.WaitGroup
	for i := range parts {
		from, to := c.size*i/n, c.size*(i+1)/n
		all.Go(func() { parts[i] = p.differing(parts[i][:0], &c, now[:to], from) })
	}
	all.Wait()
	s.changed = s.changed[:0]
	for _, part := range parts {
		for _, m := range part {
			if w := p.encode(&c, &m.slot); w != now[m.at] {
				s.changed = append(s.changed, slotWord{m.at, w})
			} else {
				p.rings.releaseChain(p.ring, w) // the slot had it already
			}
		}
	}
	p.changed = s.changed
}

// differing appends the slots of a part of a ring that differ to all, and changes nothing
// else. Nearly all slots are only checked, and stay the same.
func (p *Plan) differing(all []movedSlot, c *content, now []uint64, from int) []movedSlot {
	noneLeft := func(uint32) bool { return true }
	if p.ring.chained() && !c.allStay {
		noneLeft = p.rings.chains.whole(c.next.Has)
	}
	for i := from; i < len(now); i++ {
		w := now[i]
		if c.follows && c.next.Always(i, firstOf(w)) && noneLeft(chainOf(w)) {
			continue
		}
		if s := c.slot(i); !p.same(c, &s, w) {
			all = append(all, movedSlot{uint32(i), s})
		}
	}
	return all
}

// same reports whether a word is that of a slot.
func (p *Plan) same(c *content, s *ring.Slot, w uint64) bool {
	if c.weights == nil && p.ring.chained() {
		return *s == p.rings.slotOf(p.ring, w)
	}
	return w == word(s.First, c.weights[s.First])
}
