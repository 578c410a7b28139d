package flowtable

import (
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Owners are the servers that flows can have, by id.
type Owners struct {
	// Current are the generation + 1 of each server, or 0 without one.
	Current []uint32
	// Generations are those of each number's last owner.
	Generations []uint32
}

// Owner is the value of Owners.Current for a generation.
func Owner(generation uint32) uint32 { return generation&generationMask + 1 }

// Sweep is the state of a sweep, which clears expired flows and those of removed servers,
// and recounts every server's connections.
type Sweep struct {
	owners, generations []uint32 // at the start
	before, counted     []uint64 // connections
	overtaken           uint64   // the table's value at the start
	opening             int      // flows that are not established yet
	recent              int      // flows whose packets use or would use a copy
}

// Begin begins a sweep. The owner of the servers locks them meanwhile, and during End.
func (t *Table) Begin(o Owners) *Sweep {
	c := &Sweep{
		owners: o.Current, generations: slices.Clone(o.Generations),
		before: make([]uint64, len(t.Connections)), counted: make([]uint64, len(t.Connections)),
		overtaken: t.overtaken.Load(),
	}
	for id := range c.before {
		c.before[id] = atomic.LoadUint64(&t.Connections[id])
	}
	return c
}

// Run sweeps the table.
func (t *Table) Run(c *Sweep, now uint32) {
	for i := range t.Sets {
		for j := range t.Sets[i].Way {
			e := &t.Sets[i].Way[j]
			w := Word(atomic.LoadUint64(&e.Word))
			if w == w.over() {
				continue
			}
			id, next := w.server(), c.next(w, now)
			switch {
			case next != w:
				if t.overtaken.Load() != c.overtaken {
					return
				}
				atomic.CompareAndSwapUint64(&e.Word, uint64(w), uint64(next)) // fails if a packet has changed it meanwhile
			case w.IsFlow() && c.owners[id] == w.generation()+1:
				c.counted[id] += w.counts()
				if w.in(bpf.BalancerFlowStateFLOW_OPENING, bpf.BalancerFlowStateFLOW_ANSWERED) {
					c.opening++
				}
				if t.recent(w, now) {
					c.recent++
				}
			}
		}
	}
	t.forget(c)
}

// recent reports whether a flow has had packets for which it would have a copy. The timeout
// of a flow in use is renewed every few seconds.
func (t *Table) recent(w Word, now uint32) bool {
	const renewed = 2 * (5 * 1e9) >> TickShift // FLOW_RENEW
	return !w.nat() && w.in(bpf.BalancerFlowStateFLOW_ESTABLISHED, bpf.BalancerFlowStateFLOW_UDP) &&
		now+t.lives[w.State()]-w.Expires() <= renewed
}

// crowds reports whether so many flows in use crowd out each other's copies. With twice as
// many flows as copies, searching them costs as much as it saves.
func (t *Table) crowds(flows int) bool {
	most := 2 * len(t.Recent) * len(bpf.BalancerFlowRecent{}.Way)
	if t.crowded {
		most -= most / 4
	}
	return flows > most
}

// forget removes the copies of words whose server is removed, so that its generation cannot
// recur while they last. Run has changed the words before, so none is copied again.
func (t *Table) forget(c *Sweep) {
	for i := range t.Recent {
		for j := range t.Recent[i].Way {
			e := &t.Recent[i].Way[j]
			if w := Word(atomic.LoadUint64(&e.Word)); w != 0 && c.void(w) {
				atomic.StoreUint64(&e.Check, 0)
			}
		}
	}
}

// next returns the new word of a flow: unchanged, unless it has expired or its server is
// removed.
func (c *Sweep) next(w Word, now uint32) Word {
	ago := int32(now - w.Expires())
	switch {
	case c.void(w):
		return w.over()
	case ago < 0:
		return w
	case w.outlives() && ago < lingers:
		return w.lingering()
	}
	return w.over()
}

// void reports whether a flow belongs to a server removed before the sweep began. A
// server added since has a younger generation, and its flows stay.
func (c *Sweep) void(w Word) bool {
	id := w.server()
	if int(id) >= len(c.owners) {
		return true
	}
	younger := (w.generation() - c.generations[id]) & generationMask
	return younger > generationReach || younger == 0 && c.owners[id] == 0
}

// End corrects wrong counts, except for an id with a new owner. Earlier owners than those at
// the start of the sweep have no flows left: no packet that knew one of them was still in
// flight.
func (t *Table) End(c *Sweep, now Owners) {
	if t.overtaken.Load() != c.overtaken {
		return
	}
	for id := range c.counted {
		if c.owners[id] == now.Current[id] {
			after := atomic.LoadUint64(&t.Connections[id])
			atomic.AddUint64(&t.Connections[id], drift(c.before[id], c.counted[id], after))
		}
	}
	t.swept, t.opening, t.crowded = c.generations, c.opening, t.crowds(c.recent)
}

// NextOwner ensures that flows of an id's previous owners can be distinguished from those of
// the next one, of this generation, despite the few bits in a word: it sweeps if there have been too many owners
// since the last sweep. A concurrent sweep could not distinguish them either, and ends.
func (t *Table) NextOwner(id, generation uint32, owners func() Owners) {
	if generation-t.swept[id] <= generationReach {
		return
	}
	t.overtaken.Add(1)
	o := owners()
	c := t.Begin(o)
	t.Run(c, Now())
	t.End(c, o)
}
