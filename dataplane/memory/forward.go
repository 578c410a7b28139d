package memory

import (
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/ring"
	"github.com/fairlead/fairlead/schedule"
	"github.com/fairlead/fairlead/service"
)

// The reasons not to forward a packet.
var (
	ErrNotOurs   = errors.New("no frontend has this address")
	ErrNotServed = errors.New("no frontend of this address has this port and protocol")
	ErrNoServer  = errors.New("no server takes new flows")
)

// Decision is where a packet goes.
type Decision struct {
	Server netip.AddrPort
	// Second may know the flow where Server does not; the zero value where
	// nobody can.
	Second netip.AddrPort
}

// Forward decides on one packet of a flow, of the given length; syn says that
// it opens a TCP connection. It counts and, where the scheduler or the method
// needs it, remembers the flow, as every data plane does.
func (d *DataPlane) Forward(flow schedule.Flow, syn bool, length int) (Decision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.frontends[flow.Key]
	if !ok {
		return Decision{}, d.whyNot(flow.VIP)
	}
	slot, fresh := f.choose(flow, syn)
	if slot.First == 0 {
		return Decision{}, ErrNoServer
	}
	f.count(slot.First, fresh, length)
	decision := Decision{Server: f.ids[slot.First].Addr}
	if slot.Second != 0 {
		decision.Second = f.ids[slot.Second].Addr
	}
	return decision, nil
}

// whyNot tells what is wrong with a packet to no frontend.
func (d *DataPlane) whyNot(dst netip.Addr) error {
	for k := range d.frontends {
		if k.VIP == dst {
			return ErrNotServed
		}
	}
	return ErrNotOurs
}

// choose gives the server of a packet and says whether it begins a flow.
func (f *frontend) choose(flow schedule.Flow, syn bool) (slot ring.Slot, fresh bool) {
	if f.Method != service.FullNAT && f.Scheduler == service.Maglev {
		if len(f.slots) == 0 {
			return ring.Slot{}, false
		}
		slot = schedule.Maglev(f.slots, flow)
		if syn || flow.Protocol != service.TCP {
			slot.Second = 0 // a new flow is First's, and UDP has no second chance
		} else if slot.First == 0 {
			slot = ring.Slot{First: slot.Second}
		}
		return slot, syn
	}
	if id, known := f.flows[flow]; known {
		return ring.Slot{First: id}, false
	}
	id := f.next(flow)
	if id != 0 {
		f.flows[flow] = id
	}
	return ring.Slot{First: id}, id != 0
}

// next gives the server of a new flow.
func (f *frontend) next(flow schedule.Flow) ring.ID {
	if f.Scheduler == service.RoundRobin {
		return f.turn.Next(f.slots)
	}
	if len(f.slots) == 0 {
		return 0
	}
	return schedule.Maglev(f.slots, flow).First
}

func (f *frontend) count(id ring.ID, fresh bool, length int) {
	name := f.ids[id].Addr.String()
	backend := f.counters.Backends[name]
	for _, c := range []*dataplane.Counts{&f.counters.Total, &backend} {
		c.Packets++
		c.Bytes += uint64(length)
		if fresh {
			c.Flows++
		}
	}
	f.counters.Backends[name] = backend
}
