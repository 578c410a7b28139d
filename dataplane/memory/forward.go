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
	// Older may know the flow where Server does not, to be asked in this
	// order; the last may be Server itself, which then takes it.
	Older []netip.AddrPort
}

// Forward decides on one packet of a flow, of the given length; opens says
// that it is a SYN or an INIT. It counts and, where the scheduler or the method
// needs it, remembers the flow, as every data plane does.
func (d *DataPlane) Forward(flow schedule.Flow, opens bool, length int) (Decision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.frontends[flow.Key]
	if !ok {
		return Decision{}, d.whyNot(flow.VIP)
	}
	id, chain, fresh := f.choose(flow, opens)
	if id == 0 {
		return Decision{}, ErrNoServer
	}
	f.count(id, fresh, length)
	decision := Decision{Server: f.ids[id].Addr}
	for _, id := range chain {
		decision.Older = append(decision.Older, f.ids[id].Addr)
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

// choose gives the server of a packet, whom it names beside, and whether it
// begins a flow.
func (f *frontend) choose(flow schedule.Flow, opens bool) (id ring.ID, chain []ring.ID, fresh bool) {
	if f.Stateful() {
		id, fresh = f.remember(flow)
		return id, nil, fresh
	}
	if len(f.slots) == 0 {
		return 0, nil, false
	}
	slot := schedule.Maglev(f.slots, flow)
	if !f.SecondChance() || opens && flow.Protocol != service.UDP {
		return slot.First, nil, opens
	}
	chain = slot.Chain(flow.Protocol)
	if slot.First == 0 && len(chain) > 0 {
		return chain[0], chain[1:], opens
	}
	return slot.First, chain, opens
}

// remember gives the server that has a flow, or gives it one.
func (f *frontend) remember(flow schedule.Flow) (id ring.ID, fresh bool) {
	if id, known := f.flows[flow]; known {
		return id, false
	}
	id = f.next(flow)
	if id != 0 {
		f.flows[flow] = id
	}
	return id, id != 0
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
