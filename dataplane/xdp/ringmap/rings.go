// Package ringmap stores the rings of frontends in the kernel: slots in segments of memory,
// which programs read without locks, and the chains of older owners that slots refer to. It
// does not decide which backend has which slot; core/ring does. In such memory it also stores
// the agent's lists of backends. Chains, lists and memory are tested here, and whole changes
// with the program in dataplane/xdp.
package ringmap

import (
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// Rings are the rings of all frontends, for one goroutine.
type Rings struct {
	memory  memory
	shared  sharing
	chains  chainTable
	maps    *bpf.BalancerMaps
	builder *ring.Builder
	grace   func() error // waits, and calls Wake
	wide    uint32       // how many words the rings have before further ones are narrow
	coming  upcoming
}

// cachedSlots is how many slots of the ring builder's tables are cached for the next rings.
const cachedSlots = 1 << 21

// New returns rings that are not read yet. segment is the spec of a part of the memory. grace
// waits until no packet can still use what was released, and calls Wake. Beyond wide words of
// 8 bytes, further rings are narrow.
func New(maps *bpf.BalancerMaps, segment *ebpf.MapSpec, wide uint32, grace func() error) *Rings {
	return &Rings{memory: memory{outer: maps.Rings, spec: segment}, shared: newSharing(), maps: maps, builder: ring.NewBuilder(cachedSlots), wide: wide, grace: grace}
}

// Ring is a frontend's ring: its entry says where it is, and what its slots contain.
type Ring struct {
	Entry    bpf.BalancerFrontend
	Protocol service.Protocol
}

func (r Ring) narrow() bool { return r.Entry.Scheduler&narrowBit != 0 }

// Locate returns an entry with the location of this ring.
func (r Ring) Locate(e bpf.BalancerFrontend) bpf.BalancerFrontend {
	e.Segment, e.Slot, e.Slots = r.Entry.Segment, r.Entry.Slot, r.Entry.Slots
	e.Scheduler = e.Scheduler&^narrowBit | r.Entry.Scheduler&narrowBit
	return e
}

func (r Ring) chained() bool { return entry.HasChains(r.Entry) && !entry.HasWeights(r.Entry) }

// Open maps the kernel's memory, with no ring in it, and ensures that there is some. It may be called
// again.
func (r *Rings) Open() error {
	r.shared = newSharing()
	if err := r.memory.open(); err != nil {
		return err
	}
	if segments, _ := r.Usage(); segments == 0 {
		return r.memory.grow(1)
	}
	return nil
}

// Close closes it. The kernel keeps everything.
func (r *Rings) Close() error {
	if r == nil {
		return nil
	}
	return r.memory.close()
}

// Mark records a ring found in the kernel, which several frontends may share, and reports
// whether its place existed and no other ring overlaps it.
func (r *Rings) Mark(found Ring) bool {
	if found.Entry.Slots == 0 {
		return true
	}
	if one := r.shared.find(found); one != nil {
		one.frontends++
		return true
	}
	s := slotsOf(found, r.memory.from(found.location()))
	p := place{found.Entry.Segment, alloc.Extent{First: found.Entry.Slot, N: s.memory()}}
	if s.n == 0 || !r.memory.mark(p) {
		return false
	}
	r.shared.add(&stored{place: p, slots: s, from: r.shared.unknown(), chained: found.chained()})
	return true
}

// MaxSlots is the maximum size of a ring.
func (r *Rings) MaxSlots() int { return int(r.memory.spec.MaxEntries) }

// Lacking counts the slots whose chain was shortened, for lack of room, since Learn.
func (r *Rings) Lacking() int { return r.chains.lacking }

// Usage returns the number of segments, and of slots that rings have.
func (r *Rings) Usage() (segments int, slots uint32) { return r.memory.usage() }

// Tables returns how full the memory of the rings and the table of chains are.
func (r *Rings) Tables() []dataplane.Table {
	chains, size := r.chains.numbers.Used()
	return []dataplane.Table{
		r.memory.table("rings"),
		{Name: "chains", Used: chains, Size: size},
	}
}

// Learn reads which slots of the marked rings use which chains, and the chains' owners.
// server returns the number of a server, 0 without one.
func (r *Rings) Learn(rings []Ring, server func(netip.AddrPort) ring.ID) error {
	r.chains = newChainTable(r.maps.Chains.MaxEntries()-1, r.grace)
	var named []uint32
	read := map[*stored]bool{}
	for _, one := range rings {
		found := r.shared.find(one)
		if !one.chained() || found == nil || read[found] {
			continue
		}
		read[found] = true
		for i := range found.n {
			if n := chainOf(found.at(i)); r.chains.learn(n) {
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

// Reserve makes room for new rings at once: as they are taken one by one, the kernel would
// wait for packets in flight many times. If Lay gets them in the same order, it builds several
// at a time. Members need no numbers.
func (r *Rings) Reserve(rings []Request) error {
	r.coming = upcoming{rings: rings}
	var sizes []uint32
	seen, words := map[origin]bool{}, r.shared.words
	for i := range rings {
		q := &rings[i]
		if from, shares := r.origin(q); shares {
			if seen[from] {
				continue
			}
			seen[from] = true
		}
		n := q.Entry.RingSize
		if words+n > r.wide {
			n = min(n, uint32(narrowWords(int(n))+2*len(q.Members)))
		}
		sizes, words = append(sizes, n), words+n
	}
	if n := r.memory.lacking(sizes); n > 0 {
		return r.memory.grow(n)
	}
	return nil
}

// Unnumbered returns backends as members without numbers.
func Unnumbered(backends []service.Backend) []ring.Member {
	all := make([]ring.Member, len(backends))
	for i, b := range backends {
		all[i] = ring.Member{Addr: b.Addr, Weight: b.Weight, Since: b.Since, Drained: b.Drained}
	}
	return all
}

// Wait returns when all packets that were in flight at the call are done.
func (r *Rings) Wait() error { return r.memory.wait() }

// Wake makes what rests available again.
func (r *Rings) Wake() error {
	r.chains.numbers.Wake()
	return r.memory.wake()
}

// InKernel reports whether the program finds a ring where this process has it.
func (r *Rings) InKernel(of Ring) (bool, error) {
	if of.Entry.Slots == 0 {
		return true, nil
	}
	one := r.shared.find(of)
	if one == nil {
		return false, nil
	}
	return r.memory.has(one.place)
}

// Owned returns the size of a ring in the kernel, the number of slots of each owner, and a
// digest of which slots have which owner. addr returns the address of an owner, which is the
// same on all load balancers, as its number is not.
func (r *Rings) Owned(of Ring, addr func(ring.ID) netip.AddrPort) (slots int, owned map[ring.ID]int, digest string) {
	owned = map[ring.ID]int{}
	one := r.shared.find(of)
	if one == nil {
		return 0, owned, ""
	}
	sums := map[ring.ID][]byte{}
	all := fnv.New64a()
	for i := range one.n {
		id := firstOf(one.at(i))
		if owned[id]++; sums[id] == nil {
			h := fnv.New64a()
			_, _ = h.Write([]byte(addr(id).String()))
			sums[id] = h.Sum(nil)
		}
		_, _ = all.Write(sums[id])
	}
	return one.n, owned, fmt.Sprintf("%d-%016x", one.n, all.Sum64())
}

// Slots returns a ring from the kernel, nil for a scheduler whose next ring does not depend on
// it.
func (r *Rings) Slots(of Ring) []ring.Slot {
	if !entry.HasHistory(of.Entry) {
		return nil
	}
	one := r.shared.find(of)
	if one == nil {
		return []ring.Slot{}
	}
	all := make([]ring.Slot, one.n)
	for i := range all {
		all[i] = r.slotOf(one.at(i), of.chained())
	}
	return all
}

// slotOf decodes a word of a ring.
func (r *Rings) slotOf(w uint64, chained bool) ring.Slot {
	s := ring.Slot{First: firstOf(w)}
	if n := chainOf(w); n != 0 && chained {
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
