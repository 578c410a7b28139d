// Package fake is a data plane without a kernel: it stores frontends in maps and chooses
// backends by the same rules as the others. Tests run on it, and the other data planes
// are compared with it. Faulty wraps any data plane and makes calls fail.
package fake

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// DataPlane is the in-memory data plane. Its methods may be called from any
// goroutine.
type DataPlane struct {
	mu        sync.Mutex
	frontends map[service.Key]*frontend
	lastID    ring.ID
	rings     *ring.Builder
	now       func() time.Time
}

type frontend struct {
	desired.Frontend
	members  []ring.Member
	slots    []ring.Slot
	lived    bool // written since Restart
	ids      map[ring.ID]service.Backend
	counters dataplane.FrontendCounters

	// For flow tracking.
	flows    map[schedule.Flow]ring.ID
	conns    map[ring.ID]uint32
	finished map[schedule.Flow]bool // those of flows that have ended
	chooser  schedule.Chooser
	affinity schedule.Affinity
}

// New returns an empty data plane.
func New() *DataPlane { return NewAt(time.Now) }

// NewAt returns an empty data plane with another clock.
func NewAt(now func() time.Time) *DataPlane {
	return &DataPlane{frontends: map[service.Key]*frontend{}, rings: ring.NewBuilder(1 << 20), now: now}
}

// List implements dataplane.DataPlane.
func (d *DataPlane) List() ([]desired.Frontend, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []desired.Frontend
	for _, f := range d.frontends {
		copied := f.Frontend
		copied.Backends = slices.Clone(f.Backends)
		for i := range copied.Backends {
			copied.Backends[i].Name, copied.Backends[i].Node = "", ""
		}
		list = append(list, copied)
	}
	slices.SortFunc(list, func(a, b desired.Frontend) int { return a.Key.Compare(b.Key) })
	return list, nil
}

// Upsert implements dataplane.DataPlane.
func (d *DataPlane) Upsert(want desired.Frontend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := cmp.Or(d.frontends[want.Key], &frontend{})
	next := &frontend{
		Frontend: want, ids: map[ring.ID]service.Backend{}, flows: map[schedule.Flow]ring.ID{}, conns: map[ring.ID]uint32{}, finished: map[schedule.Flow]bool{},
		chooser: before.chooser, affinity: before.affinity,
		counters: dataplane.FrontendCounters{Key: want.Key, Total: before.counters.Total, Backends: map[string]dataplane.Counts{}},
	}
	next.Backends = slices.Clone(want.Backends)
	d.number(before, next)
	var err error
	var members []ring.Member
	if before.lived && shapeOf(before.Frontend) == shapeOf(want) {
		members = before.members
	}
	if next.slots, err = d.rings.For(want.Scheduler, before.slots, want.RingSize, next.members, members); err != nil {
		return err
	}
	next.lived = true
	if !want.SecondChance() {
		for i := range next.slots {
			next.slots[i].Older = [ring.Depth]ring.ID{} // unused, and so not stored
		}
	}
	next.keep(before)
	d.frontends[want.Key] = next
	return nil
}

// shape is what must stay the same for a ring to be derived from the previous one.
type shape struct {
	method        service.Method
	encapsulation service.Encapsulation
	scheduler     service.Scheduler
	survival      service.Survival
	ringSize      int
	affinity      time.Duration
	guarded       bool
	keepsPort     bool
}

func shapeOf(f desired.Frontend) shape {
	return shape{
		f.Method, f.Encapsulation, f.Scheduler, f.Survival, f.RingSize, f.Affinity, f.Guarded(),
		len(f.Backends) > 0 && f.Backends[0].Addr.Port() == 0,
	}
}

// Restart discards what a new process cannot read back: the input of the rings that it
// finds.
func (d *DataPlane) Restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.frontends {
		f.lived = false
	}
}

// keep takes over the tracked flows of backends that stay, or none if the frontend no
// longer tracks flows.
func (f *frontend) keep(before *frontend) {
	stays := func(id ring.ID) bool {
		_, ok := f.ids[id]
		return ok && f.Stateful()
	}
	for flow, id := range before.flows {
		if stays(id) {
			f.flows[flow] = id
			f.conns[id]++
			if before.finished[flow] {
				f.finished[flow] = true
			}
		}
	}
	f.affinity.Keep(stays)
}

// number numbers next's backends: those that stay keep their number and counters.
func (d *DataPlane) number(before, next *frontend) {
	known := map[string]ring.ID{}
	for id, b := range before.ids {
		known[b.Addr.String()] = id
	}
	for _, b := range next.Backends {
		name := b.Addr.String()
		id, ok := known[name]
		if !ok {
			d.lastID++
			id = d.lastID
		}
		next.ids[id] = b
		next.counters.Backends[name] = before.counters.Backends[name]
		next.members = append(next.members, ring.Member{ID: id, Addr: b.Addr, Weight: b.Weight, Since: b.Since, Drained: b.Drained})
	}
}

// Delete implements dataplane.DataPlane.
func (d *DataPlane) Delete(k service.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.frontends, k)
	return nil
}

// Counters implements dataplane.DataPlane.
func (d *DataPlane) Counters() ([]dataplane.FrontendCounters, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []dataplane.FrontendCounters
	for _, f := range d.frontends {
		c := f.counters
		c.Backends = maps.Clone(c.Backends)
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b dataplane.FrontendCounters) int { return a.Key.Compare(b.Key) })
	return all, nil
}

// Read implements dataplane.Reader.
func (d *DataPlane) Read(k service.Key) (*dataplane.Programmed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.frontends[k]
	if f == nil {
		return nil, nil
	}
	p := &dataplane.Programmed{Frontend: f.Frontend, Slots: len(f.slots), Owned: map[netip.AddrPort]int{}, Counters: f.counters}
	p.Frontend.Backends, p.Counters.Backends = slices.Clone(f.Backends), maps.Clone(f.counters.Backends)
	for _, s := range f.slots {
		if b, ok := f.ids[s.First]; ok {
			p.Owned[b.Addr]++
		}
	}
	return p, nil
}

// Describe implements dataplane.DataPlane.
func (d *DataPlane) Describe() dataplane.Description { return dataplane.Description{Kind: "memory"} }

// Close implements dataplane.DataPlane.
func (d *DataPlane) Close() error { return nil }
