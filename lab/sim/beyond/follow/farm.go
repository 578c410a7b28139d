package follow

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/ring"
)

// Farm is a service's servers, and the rings that balancers have of them: one for
// all that began at the same time, since what a ring remembers of earlier owners
// depends on it.
type Farm struct {
	size    int
	builder *ring.Builder
	members []ring.Member
	rings   []aged
	serving int    // members that take new flows
	there   []bool // by ring.ID
}

// aged is the ring of balancers that began at some moment.
type aged struct {
	began int
	slots []ring.Slot
}

// NewFarm gives the servers' farm with rings of size slots, for balancers that
// began at moment 0. A builder may serve many farms, one after the other.
func NewFarm(size int, builder *ring.Builder, members []ring.Member) (*Farm, error) {
	f := &Farm{size: size, builder: builder}
	return f, f.Change(members, []int{0})
}

// Members gives n servers, of weight 1, that have been there for ever.
func Members(service, n int) []ring.Member {
	all := make([]ring.Member, n)
	for i := range all {
		all[i] = NewMember(service, ring.ID(i+1), time.Time{})
	}
	return all
}

// NewMember gives a server that begins at a moment.
func NewMember(service int, id ring.ID, since time.Time) ring.Member {
	a := Mix(uint64(service)<<32 | uint64(id))
	addr := netip.AddrFrom4([4]byte{10, byte(a >> 16), byte(a >> 8), byte(a)})
	return ring.Member{ID: id, Addr: netip.AddrPortFrom(addr, uint16(1024+id)), Weight: 1, Since: since}
}

// Moment gives the time of a second, for the ages of servers.
func Moment(second float64) time.Time {
	return time.Unix(1e9, 0).Add(time.Duration(second * float64(time.Second)))
}

// Change makes the rings that follow, of balancers that began at these moments: 0
// for those that were there first. Those that are not among the ones before begin
// now.
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

// ring gives that of balancers that began at a moment, nil where there are none.
func (f *Farm) ring(began int) []ring.Slot {
	for i := range f.rings {
		if f.rings[i].began == began {
			return f.rings[i].slots
		}
	}
	return nil
}

// Servers gives the members as they are now.
func (f *Farm) Servers() []ring.Member { return f.members }

// first gives who takes new flows of a slot: the same for all balancers.
func (f *Farm) first(slot int) ring.ID { return f.rings[0].slots[slot].First }

// Fullest gives the greatest share of new flows that a server gets, by the mean.
func (f *Farm) Fullest() float64 {
	has, most := map[ring.ID]int{}, 0
	for i := range f.size {
		id := f.first(i)
		has[id]++
		most = max(most, has[id])
	}
	return float64(most*f.serving) / float64(f.size)
}
