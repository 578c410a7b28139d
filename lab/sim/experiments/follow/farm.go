package follow

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/ring"
)

// Farm contains a service's servers, and the Maglev tables that load balancers have of
// them. Load balancers that started at the same time share one, because a table's
// previous owners depend on the start time.
type Farm struct {
	size    int
	builder *ring.Builder
	members []ring.Member
	rings   []aged
	serving int    // number of members that accept new flows
	there   []bool // existing servers, by ring.ID
}

// aged is the Maglev table of load balancers that started at the same time.
type aged struct {
	began int
	slots []ring.Slot
}

// NewFarm returns a farm with Maglev tables of the given size, for load balancers that
// started at time 0. A builder can be used for many farms, one after the other.
func NewFarm(size int, builder *ring.Builder, members []ring.Member) (*Farm, error) {
	f := &Farm{size: size, builder: builder}
	return f, f.Change(members, []int{0})
}

// Members returns n servers of weight 1 that have always been there.
func Members(service, n int) []ring.Member {
	all := make([]ring.Member, n)
	for i := range all {
		all[i] = NewMember(service, ring.ID(i+1), time.Time{})
	}
	return all
}

// NewMember returns a server that starts at the given time.
func NewMember(service int, id ring.ID, since time.Time) ring.Member {
	a := Mix(uint64(service)<<32 | uint64(id))
	addr := netip.AddrFrom4([4]byte{10, byte(a >> 16), byte(a >> 8), byte(a)})
	return ring.Member{ID: id, Addr: netip.AddrPortFrom(addr, uint16(1024+id)), Weight: 1, Since: since}
}

// Moment converts seconds to a time, for the ages of servers.
func Moment(second float64) time.Time {
	return time.Unix(1e9, 0).Add(time.Duration(second * float64(time.Second)))
}

// Change builds the next Maglev tables, for load balancers with the given start times. 0
// is the start time of the initial ones. Start times that did not exist before belong to
// load balancers that start now.
func (f *Farm) Change(members []ring.Member, began []int) error {
	before, rings := f.members, make([]aged, len(began))
	for i, moment := range began {
		prev, old := f.ring(moment), before
		if prev == nil {
			old = nil
		}
		slots, err := f.builder.Maglev(prev, f.size, members, old)
		if err != nil {
			return err
		}
		rings[i] = aged{moment, slots}
	}
	f.rings, f.members, f.serving = rings, members, 0
	clear(f.there)
	for _, m := range members {
		for int(m.ID) >= len(f.there) {
			f.there = append(f.there, false)
		}
		f.there[m.ID] = true
		if m.Weight > 0 {
			f.serving++
		}
	}
	return nil
}

// ring returns the Maglev table of load balancers with the given start time, or nil
// without any.
func (f *Farm) ring(began int) []ring.Slot {
	for i := range f.rings {
		if f.rings[i].began == began {
			return f.rings[i].slots
		}
	}
	return nil
}

// Servers returns the current members.
func (f *Farm) Servers() []ring.Member { return f.members }

// first returns the server that gets new flows of a slot. It is the same for all load
// balancers.
func (f *Farm) first(slot int) ring.ID { return f.rings[0].slots[slot].First }

// Fullest returns the largest share of new flows of a server, divided by the mean.
func (f *Farm) Fullest() float64 {
	has, most := map[ring.ID]int{}, 0
	for i := range f.size {
		id := f.first(i)
		has[id]++
		most = max(most, has[id])
	}
	return float64(most*f.serving) / float64(f.size)
}
