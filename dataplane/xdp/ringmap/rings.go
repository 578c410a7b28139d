// Package ringmap stores the rings of frontends in the kernel: slots in segments of memory,
// which programs read without locks, and the chains of older owners that slots refer to. It
// does not decide which backend has which slot; core/ring does. Chains and memory are tested
// here, and whole changes with the program in dataplane/xdp.
package ringmap

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// Rings are the rings of all frontends, for one goroutine.
type Rings struct {
	memory  memory
	chains  chainTable
	maps    *bpf.BalancerMaps
	grace   func() error // waits, and calls Wake
	slots   []ring.Slot  // memory for Slots,
	words   []uint64     // for Lay,
	moving  [][]movedSlot
	changed []SlotWord // and for Follow
}

// New returns rings that are not read yet. segment is the spec of a part of the memory. grace
// waits until no packet can still use what was released, and calls Wake.
func New(maps *bpf.BalancerMaps, segment *ebpf.MapSpec, grace func() error) *Rings {
	return &Rings{memory: memory{outer: maps.Rings, spec: segment}, maps: maps, grace: grace}
}

// Ring is a frontend's ring: its entry says where it is, and what its slots contain.
type Ring struct {
	Entry    bpf.BalancerFrontend
	Protocol service.Protocol
}

func (r Ring) place() place {
	return place{r.Entry.Segment, alloc.Extent{First: r.Entry.Slot, N: r.Entry.Slots}}
}

func (r Ring) chained() bool { return entry.HasChains(r.Entry) }

// Open maps the kernel's memory, with no ring in it. It may be called again.
func (r *Rings) Open() error { return r.memory.open() }

// Close closes it. The kernel keeps everything.
func (r *Rings) Close() error {
	if r == nil {
		return nil
	}
	return r.memory.close()
}

// Mark records a ring found in the kernel, and reports whether its place existed and was free.
func (r *Rings) Mark(found Ring) bool { return r.memory.mark(found.place()) }

// MaxSlots is the maximum size of a ring.
func (r *Rings) MaxSlots() int { return int(r.memory.spec.MaxEntries) }

// Lacking counts the slots whose chain was shortened, for lack of room, since Learn.
func (r *Rings) Lacking() int { return r.chains.lacking }

// Usage returns the number of segments, and of slots that rings have.
func (r *Rings) Usage() (segments int, slots uint32) { return r.memory.usage() }

// Learn reads which slots of the marked rings use which chains, and the chains' owners.
// server returns the number of a server, 0 without one.
func (r *Rings) Learn(rings []Ring, server func(netip.AddrPort) ring.ID) error {
	r.chains = newChainTable(r.maps.Chains.MaxEntries()-1, r.grace)
	var named []uint32
	for _, one := range rings {
		if !one.chained() {
			continue
		}
		for _, w := range r.Words(one) {
			if n := chainOf(w); r.chains.learn(n) {
				named = append(named, n)
			}
		}
	}
	for _, n := range named {
		var c bpf.BalancerChain
		if err := r.maps.Chains.Lookup(n, &c); err != nil {
			return fmt.Errorf("xdp: read chain %d: %w", n, err)
		}
		var owners chainOwners
		at := 0
		for _, e := range entry.Owners(c) {
			if id := server(e); id != 0 && at < len(owners) {
				owners[at] = id
				at++
			}
		}
		r.chains.know(n, owners)
	}
	return nil
}

// Take finds room for n slots, and makes room if necessary.
func (r *Rings) Take(n uint32) (segment, slot uint32, err error) {
	if n == 0 {
		return 0, 0, nil
	}
	p, ok := r.memory.take(n)
	if !ok && r.memory.resting() {
		if err := r.grace(); err != nil {
			return 0, 0, err
		}
		p, ok = r.memory.take(n)
	}
	if !ok {
		if err := r.memory.grow(r.memory.more()); err != nil {
			return 0, 0, err
		}
		p, _ = r.memory.take(n)
	}
	return p.segment, p.First, nil
}

// Reserve makes room for rings of these sizes at once: as they are taken one by one, the
// kernel would wait for packets in flight many times.
func (r *Rings) Reserve(sizes []uint32) error {
	if n := r.memory.lacking(sizes); n > 0 {
		return r.memory.grow(n)
	}
	return nil
}

// Release releases a ring and its chains, which rest until Wake.
func (r *Rings) Release(old Ring) {
	r.releaseChains(old, r.Words(old))
	r.memory.giveBack(old.place())
}

// Wait returns when all packets that were in flight at the call are done.
func (r *Rings) Wait() error { return r.memory.wait() }

// Wake makes what rests available again.
func (r *Rings) Wake() error {
	r.chains.numbers.Wake()
	return r.memory.wake()
}

// Words returns a ring as it is in the kernel, nil if it does not exist.
func (r *Rings) Words(of Ring) []uint64 { return r.memory.at(of.place()) }

// InKernel reports whether the program finds a ring where this process has it.
func (r *Rings) InKernel(of Ring) (bool, error) { return r.memory.has(of.place()) }

// Slots returns a ring from the kernel, valid until the next call; nil for a scheduler whose
// next ring does not depend on it.
func (r *Rings) Slots(of Ring) []ring.Slot {
	if !entry.HasHistory(of.Entry) {
		return nil
	}
	words := r.Words(of)
	r.slots = slices.Grow(r.slots[:0], len(words))[:len(words)]
	for i, w := range words {
		r.slots[i] = r.slotOf(of, w)
	}
	return r.slots
}

// slotOf decodes a word of a ring.
func (r *Rings) slotOf(of Ring, w uint64) ring.Slot {
	s := ring.Slot{First: firstOf(w)}
	if n := chainOf(w); n != 0 && of.chained() {
		s.Older = older(r.chains.of(n), s.First)
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

// Follow returns the slots that change in the next ring, which has the same place. The
// result is valid until the next call. New chains are allocated. If all servers stay, no
// chain contains a former one.
func (r *Rings) Follow(of Ring, allStay bool, next *ring.Next) []SlotWord {
	now := r.Words(of)
	r.moving = slices.Grow(r.moving, runtime.GOMAXPROCS(0)-len(r.moving))[:runtime.GOMAXPROCS(0)]
	parts := r.moving
	var all sync.WaitGroup
	for i := range parts {
		from, to := len(now)*i/len(parts), len(now)*(i+1)/len(parts)
		all.Go(func() { parts[i] = r.moved(parts[i][:0], of, now[:to], from, allStay, next) })
	}
	all.Wait()
	r.changed = r.changed[:0]
	for _, part := range parts {
		for _, m := range part {
			w, fresh := now[m.at], word(m.slot.First, 0)
			if of.chained() {
				fresh = word(m.slot.First, r.takeChain(&m.slot, of.Protocol))
			}
			if fresh != w {
				r.changed = append(r.changed, SlotWord{m.at, fresh})
			} else if of.chained() {
				r.chains.release(chainOf(w)) // the slot had it already
			}
		}
	}
	return r.changed
}

// movedSlot is a slot that differs in the next ring.
type movedSlot struct {
	at   uint32
	slot ring.Slot
}

// moved appends those of a part of a ring to all, and changes nothing else. Nearly all
// slots are only checked, and stay the same.
func (r *Rings) moved(all []movedSlot, of Ring, now []uint64, from int, allStay bool, next *ring.Next) []movedSlot {
	whole := allStay || !of.chained()
	var kept func(uint32) bool
	if !whole {
		kept = r.chains.whole(next.Has)
	}
	for i := from; i < len(now); i++ {
		w := now[i]
		if next.Always(i, firstOf(w)) && (whole || kept(chainOf(w))) {
			continue
		}
		before := r.slotOf(of, w)
		if s := next.Slot(i, &before); s != before {
			all = append(all, movedSlot{uint32(i), s})
		}
	}
	return all
}

// Lay returns the words of a ring's slots, valid until the next call. It allocates chains for
// all of them, if the ring has chains. weights are those of the servers, if it has weights.
func (r *Rings) Lay(of Ring, slots []ring.Slot, weights map[ring.ID]uint32) []uint64 {
	r.words = slices.Grow(r.words[:0], len(slots))[:len(slots)]
	weighted, chained := entry.HasWeights(of.Entry), of.chained()
	for i := range slots {
		s := &slots[i]
		switch {
		case weighted:
			r.words[i] = word(s.First, weights[s.First])
		case chained:
			r.words[i] = word(s.First, r.takeChain(s, of.Protocol))
		default:
			r.words[i] = word(s.First, 0)
		}
	}
	return r.words
}

// Differing returns which of the words from Lay differ from those now in place.
func (r *Rings) Differing(of Ring, words []uint64) (changed []SlotWord) {
	now := r.Words(of)
	for i, w := range words {
		if w != now[i] {
			changed = append(changed, SlotWord{uint32(i), w})
		} else if of.chained() {
			r.chains.release(chainOf(w)) // the slot had it already
		}
	}
	return changed
}

// WriteChains writes the allocated chains. addr returns the address of a server.
func (r *Rings) WriteChains(addr func(ring.ID) netip.AddrPort) error {
	return r.chains.write(r.maps.Chains, addr)
}

// Put writes a ring that no packet looks up.
func (r *Rings) Put(to Ring, words []uint64) { r.memory.write(to.place(), words) }

// Change writes slots of a ring one after the other: traffic sees each either before or after
// the change. It releases the chains that they had.
func (r *Rings) Change(of Ring, changed []SlotWord) {
	r.releaseChains(of, r.memory.change(of.place(), changed))
}

// takeChain returns the number of a slot's chain.
func (r *Rings) takeChain(s *ring.Slot, p service.Protocol) uint32 {
	if s.Older[0] == 0 {
		return 0
	}
	owners := s.Older
	if p == service.UDP {
		owners = chainOwners{}
		copy(owners[:], s.Chain(p))
	}
	return r.chains.take(owners)
}

// releaseChains releases the chains of slots that had these words.
func (r *Rings) releaseChains(of Ring, words []uint64) {
	if !of.chained() {
		return
	}
	for _, w := range words {
		r.chains.release(chainOf(w))
	}
}
