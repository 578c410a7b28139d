// Package schedule says which server a flow gets: the schedulers as pure state
// machines, without packets, clocks or kernels. The data planes do the same in
// their own ways and are compared with it.
package schedule

import (
	"net/netip"

	"github.com/fairlead/fairlead/dataplane/ring"
	"github.com/fairlead/fairlead/service"
)

// Flow is a client's side of a connection and what it addresses.
type Flow struct {
	Client netip.AddrPort
	service.Key
}

// String gives "192.168.0.2:40000 to TCP 10.1.1.1:80".
func (f Flow) String() string { return f.Client.String() + " to " + f.Key.String() }

// Maglev gives the slot of a flow: the same for every packet of it, on every
// balancer. slots must not be empty.
func Maglev(slots []ring.Slot, f Flow) ring.Slot {
	return slots[slot(Hash(f), len(slots))]
}

// RoundRobin takes the slots in turn. Its zero value is ready.
type RoundRobin struct {
	turn uint32
}

// Next gives the server of a new flow, none where there is no slot.
func (r *RoundRobin) Next(slots []ring.Slot) ring.ID {
	if len(slots) == 0 {
		return 0
	}
	id := slots[r.turn%uint32(len(slots))].First
	r.turn++
	return id
}
