package ringmap

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// Request describes the next ring of a frontend.
type Request struct {
	Ring                  // its entry, without a location
	Members []ring.Member // by address
	Before  Existing      // the frontend's current ring, empty without one
	// EntryStays reports that only the ring changes: it may overwrite Before.
	EntryStays bool
	// Past, if not nil, is the ring of a predecessor: the new one is derived from it
	// instead of Before.
	Past AddressRing
}

// AddressRing is a ring by backend addresses: each slot's first, and then older ones.
type AddressRing = [][1 + ring.Depth]netip.AddrPort

// Existing is a ring that another one replaces.
type Existing struct {
	Ring
	Members []ring.Member // by address
	Made    bool          // this process made the ring from these members
}

// Scratch is memory for one layout that the next one reuses. Its content has no meaning
// after that.
type Scratch struct {
	words   []uint64   // all slots, if the ring is elsewhere than before; else
	changed []slotWord // its changed slots, of which words are replaced
	fresh   []uint32   // its chains that are not written yet
	moved   [][]movedSlot
	packed  []uint64 // words of a narrow ring
}

// Plan is a ring that is laid out: it has a place and chains in this process's memory, and
// packets do not see it yet. It is valid until Lay is called again with its Scratch.
type Plan struct {
	Ring // its entry has the location
	*Scratch
	rings   *Rings
	before  Ring
	from    origin
	inPlace bool
}

// Lay lays out a ring, or finds one of the same content. It writes nothing that packets look
// up; without room it waits for packets in flight, or adds memory. After an error, nothing is
// taken.
func (r *Rings) Lay(q Request, s *Scratch) (Plan, error) {
	s.words, s.changed, s.fresh = s.words[:0], s.changed[:0], s.fresh[:0]
	p := Plan{Scratch: s, rings: r, Ring: q.Ring, before: q.Before.Ring}
	if q.Before.Entry.Slots == 0 && entry.HasHistory(q.Entry) {
		r.coming.next()
	}
	var shares bool
	p.from, shares = r.origin(&q)
	if one := r.shared.from[p.from]; one != nil && shares {
		p.reuse(one, q.EntryStays)
		return p, nil
	}
	c, err := r.content(&q)
	if err != nil {
		return Plan{}, err
	}
	if p.inPlace = r.fits(&q, c.size); p.inPlace {
		p.Entry = p.before.Locate(p.Entry)
		p.change(c)
		return p, nil
	}
	p.fill(c)
	return p, p.place()
}

// place finds room for the slots.
func (p *Plan) place() error {
	p.packed = p.packed[:0]
	memory, isNarrow := p.words, false
	if entry.HasHistory(p.Entry) && p.rings.crowded(len(p.words)) {
		if p.packed, isNarrow = pack(p.packed, p.words); isNarrow {
			memory = p.packed
		}
	}
	to, err := p.rings.memory.room(uint32(len(memory)), p.rings.grace)
	if err != nil {
		p.rings.release(slotsIn(p.words, len(p.words), false), p.chained())
		return err
	}
	p.locate(location{to.segment, to.First}, len(p.words), isNarrow)
	if to.N > 0 {
		p.rings.shared.add(&stored{place: to, slots: slotsIn(p.rings.memory.at(to), len(p.words), isNarrow), from: p.from, chained: p.chained()})
	}
	return nil
}

// reuse lays out a ring that exists. If the frontend has it, nothing changes.
func (p *Plan) reuse(one *stored, entryStays bool) {
	if p.inPlace = entryStays && p.rings.shared.find(p.before) == one; p.inPlace {
		p.Entry = p.before.Locate(p.Entry)
		return
	}
	one.frontends++
	p.locate(location{one.segment, one.First}, one.n, one.narrow())
}

func (p *Plan) locate(at location, slots int, narrow bool) {
	p.Entry.Segment, p.Entry.Slot, p.Entry.Slots = at.segment, at.first, uint32(slots)
	if p.Entry.Scheduler &^= narrowBit; narrow {
		p.Entry.Scheduler |= narrowBit
	}
}

// crowded reports whether one more ring of so many words is to be narrow.
func (r *Rings) crowded(words int) bool {
	return r.shared.words+uint32(words) > r.wide
}

// Remove returns a plan that only removes a ring.
func (r *Rings) Remove(old Ring) Plan { return Plan{rings: r, before: old} }

// fits reports whether a ring of this size can overwrite the one before.
func (r *Rings) fits(q *Request, size int) bool {
	one := r.shared.find(q.Before.Ring)
	return q.EntryStays && one != nil && one.frontends == 1 && !one.narrow() && one.n == size
}

// derived returns the ring before if the next one is derived from it, else nil.
func (r *Rings) derived(q *Request) *stored {
	if !entry.HasHistory(q.Before.Entry) || q.Before.Entry.Slots != q.Entry.RingSize {
		return nil
	}
	return r.shared.find(q.Before.Ring)
}

// knows reports whether the ring before is complete, and made from the members before.
func (r *Rings) knows(q *Request) bool {
	return q.EntryStays && q.Before.Made && r.Lacking() == 0 // else slots have incomplete chains
}

// InPlace reports whether the ring overwrites the one before.
func (p *Plan) InPlace() bool { return p.inPlace }

// Write writes what no packet looks up yet: chains, and a ring that is not in place. addr
// returns the address of a server.
func (p *Plan) Write(addr func(ring.ID) netip.AddrPort) error {
	if one := p.rings.shared.find(p.Ring); len(p.words) > 0 {
		memory := p.words
		if one.narrow() {
			memory = p.packed
		}
		now := p.rings.memory.at(one.place)
		for i, w := range memory {
			atomic.StoreUint64(&now[i], w)
		}
	}
	return p.rings.chains.write(p.rings.maps.Chains, p.fresh, addr)
}

// Commit changes a ring in place, one slot after the other: traffic sees each either before
// or after the change.
func (p *Plan) Commit() {
	one := p.rings.shared.find(p.Ring)
	for _, c := range p.changed {
		p.words = append(p.words, one.words[c.slot]) // for Finish
		atomic.StoreUint64(&one.words[c.slot], c.word)
	}
	if p.inPlace && one != nil {
		p.rings.shared.changes(one, p.from)
	}
}

// Finish releases what only the ring before used. It rests until Wake.
func (p *Plan) Finish() {
	if p.inPlace {
		p.rings.release(slotsIn(p.words, len(p.words), false), p.before.chained())
		return
	}
	if one, last := p.rings.shared.leave(p.before); last {
		p.rings.release(one.slots, one.chained)
		p.rings.memory.giveBack(one.place)
	}
}

// release releases the chains of slots.
func (r *Rings) release(s slots, chained bool) {
	if !chained {
		return
	}
	for i := range s.n {
		r.chains.release(chainOf(s.at(i)))
	}
}

// content computes the slots of a ring.
type content struct {
	size    int
	slots   []ring.Slot              // of a scheduler that does not hash; else
	next    *ring.Next               // the ring
	before  func(slot int) ring.Slot // that follows this one, nil without one.
	now     *stored                  // The latter, if its numbers are the same
	left    bool                     // and members of it may have left.
	chained bool
	weights map[ring.ID]uint32 // if slots contain weights
}

func (r *Rings) content(q *Request) (c content, err error) {
	c.chained = q.chained()
	if !entry.HasHistory(q.Entry) {
		c.slots, err = r.builder.For(entry.Scheduler(q.Entry.Scheduler), nil, 0, q.Members, nil)
		c.size = len(c.slots)
		if entry.HasWeights(q.Entry) {
			c.weights = make(map[ring.ID]uint32, len(q.Members))
			for _, m := range q.Members {
				c.weights[m.ID] = m.Weight
			}
		}
		return c, err
	}
	c.size = int(q.Entry.RingSize)
	c.before, c.now = r.previous(q, c.size)
	if c.before == nil {
		r.ahead(q)
	}
	var known []ring.Member
	if c.now != nil && r.knows(q) {
		known = q.Before.Members
	}
	if c.next, err = r.builder.Next(c.size, q.Members, known, c.before != nil); err == nil {
		c.left = slices.ContainsFunc(q.Before.Members, func(m ring.Member) bool { return !c.next.Has(m.ID) })
	}
	return c, err
}

// previous returns the slots of the ring from which the next one is derived, with its
// numbers, nil without one of the same size; and the ring, if it has the same numbers.
func (r *Rings) previous(q *Request, size int) (slots func(int) ring.Slot, now *stored) {
	if past := q.Past; past != nil {
		if len(past) != size {
			return nil, nil
		}
		numbers := make(map[netip.AddrPort]ring.ID, len(q.Members))
		for _, m := range q.Members {
			numbers[m.Addr] = m.ID
		}
		return func(i int) ring.Slot { return numbered(past[i], numbers) }, nil
	}
	before, chained := r.derived(q), q.Before.chained()
	if before == nil {
		return nil, nil
	}
	to := renumbering(q.Before.Members, q.Members)
	if to == nil {
		now = before
	}
	return func(i int) ring.Slot {
		s := r.slotOf(before.at(i), chained)
		if to == nil {
			return s
		}
		owners := [1 + ring.Depth]ring.ID{s.First}
		copy(owners[1:], s.Older[:])
		return numbered(owners, to)
	}, now
}

// numbered returns a slot with the numbers of its owners, without former members.
func numbered[Owner comparable](owners [1 + ring.Depth]Owner, to map[Owner]ring.ID) ring.Slot {
	s, n := ring.Slot{First: to[owners[0]]}, 0
	for _, o := range owners[1:] {
		if id := to[o]; id != 0 {
			s.Older[n] = id
			n++
		}
	}
	return s
}

// renumbering returns the new numbers of members, nil if all that stay retain theirs.
func renumbering(before, after []ring.Member) (to map[ring.ID]ring.ID) {
	now := func(m ring.Member) ring.ID {
		at, stays := slices.BinarySearchFunc(after, m, func(a, b ring.Member) int { return a.Addr.Compare(b.Addr) })
		if !stays {
			return 0
		}
		return after[at].ID
	}
	if !slices.ContainsFunc(before, func(m ring.Member) bool { return now(m) != 0 && now(m) != m.ID }) {
		return nil
	}
	to = make(map[ring.ID]ring.ID, len(before))
	for _, m := range before {
		to[m.ID] = now(m)
	}
	return to
}

// only returns a slot's owner, and reports whether it is known to be the only one ever.
func (c *content) only(i int) (ring.ID, bool) {
	if c.next == nil || c.before != nil && c.now == nil {
		return 0, false
	}
	id := c.next.Owner(i)
	return id, (c.now == nil || c.now.at(i) == word(id, 0)) && c.next.Always(i, id)
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
	if !c.chained || s.Older[0] == 0 {
		return word(s.First, c.weights[s.First])
	}
	owners := s.Older
	if p.Protocol == service.UDP {
		owners = chainOwners{}
		copy(owners[:], s.Chain(service.UDP))
	}
	return word(s.First, p.rings.chains.take(owners, &p.fresh))
}

// fill encodes the whole ring.
func (p *Plan) fill(c content) {
	p.words = slices.Grow(p.words, c.size)[:c.size]
	if c.next != nil && c.before == nil && c.next.Owners(p.words) {
		return
	}
	for i := range p.words {
		id, only := c.only(i)
		if p.words[i] = word(id, 0); !only {
			slot := c.slot(i)
			p.words[i] = p.encode(&c, &slot)
		}
	}
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

// change encodes the slots that differ from those in place.
func (p *Plan) change(c content) {
	now, n := p.rings.shared.find(p.Ring).words, min(runtime.GOMAXPROCS(0), 1+c.size/1024) // a goroutine for fewer slots costs more
	p.moved = slices.Grow(p.moved[:0], n)[:n]
	var all sync.WaitGroup
	for i := range n {
		from, to := c.size*i/n, c.size*(i+1)/n
		all.Go(func() { p.moved[i] = p.differing(p.moved[i][:0], &c, now[:to], from) })
	}
	all.Wait()
	for _, part := range p.moved {
		for _, m := range part {
			if w := p.encode(&c, &m.slot); w != now[m.at] {
				p.changed = append(p.changed, slotWord{m.at, w})
			} else if c.chained {
				p.rings.chains.release(chainOf(w)) // the slot had it already
			}
		}
	}
}

// differing appends the slots of a part of a ring that differ to all, and changes nothing
// else. Nearly all slots are only checked, and stay the same.
func (p *Plan) differing(all []movedSlot, c *content, now []uint64, from int) []movedSlot {
	var kept func(chain uint32) bool
	if c.chained && c.now != nil && c.left {
		kept = p.rings.chains.whole(c.next.Has)
	}
	for i := from; i < len(now); i++ {
		w := now[i]
		if c.now != nil && c.next.Always(i, firstOf(w)) && (kept == nil || kept(chainOf(w))) {
			continue
		}
		was := p.rings.slotOf(w, c.chained)
		var s ring.Slot
		if c.now != nil {
			s = c.next.Slot(i, &was)
		} else {
			s = c.slot(i)
		}
		if c.chained && s != was || !c.chained && w != word(s.First, c.weights[s.First]) {
			all = append(all, movedSlot{uint32(i), s})
		}
	}
	return all
}

// Preview returns the slots that Lay would lay out. It takes no room and no chains.
func (r *Rings) Preview(q Request) ([]ring.Slot, error) {
	c, err := r.content(&q)
	if err != nil {
		return nil, err
	}
	slots := make([]ring.Slot, c.size)
	for i := range slots {
		id, only := c.only(i)
		if slots[i] = (ring.Slot{First: id}); !only {
			slots[i] = c.slot(i)
		}
	}
	return slots, nil
}
