// Package schedule decides which backend a flow gets. It implements the schedulers as
// pure state machines, without packets, clocks or kernels. The data planes implement the
// same in their own ways and are tested against it.
package schedule

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
)

// Flow is the client side of a connection and its destination.
type Flow struct {
	Client netip.AddrPort
	service.Key
}

// String returns "192.168.0.2:40000 to TCP 10.1.1.1:80".
func (f Flow) String() string { return f.Client.String() + " to " + f.Key.String() }

// By is the part of a flow that selects its slot.
type By uint8

// Inputs of the hash.
const (
	ByFlow   By = iota // addresses, ports and protocol
	ByClient           // the client's address: sh, and affinity
	ByVIP              // the VIP: dh
)

// HashBy returns the hash of the given part of a flow.
func HashBy(by By, f Flow) uint32 {
	switch by {
	case ByClient:
		return AddrHash(f.Client.Addr())
	case ByVIP:
		return AddrHash(f.VIP)
	}
	return Hash(f)
}

// Slot returns the slot for a hash: the same for every packet of a flow, on every load
// balancer. slots must not be empty.
func Slot(slots []ring.Slot, hash uint32) ring.Slot { return slots[slot(hash, len(slots))] }

// Maglev returns the slot for a flow, hashing all of it.
func Maglev(slots []ring.Slot, f Flow) ring.Slot { return Slot(slots, Hash(f)) }

// Server is what a scheduler knows about a backend.
type Server struct {
	Weight uint32
	// Conns is the number of tracked flows: every entry of the flow table counts.
	Conns uint32
	// MaxConns is the limit for Conns. 0: no limit.
	MaxConns uint32
	// Ended is how many of Conns have seen a FIN or RST from either side.
	Ended uint32
}

// Full reports whether a backend currently gets no new flows.
func (s Server) Full() bool { return s.MaxConns > 0 && s.Conns >= s.MaxConns }

// Tries limits how many slots are tried, one after the other, to find a backend that is
// not full. If none is found, the next packet of the flow tries again.
const Tries = 128

// Chooser assigns backends to new flows that will be tracked. The zero value is ready to
// use.
type Chooser struct {
	turn uint32
}

// Choose returns a backend for a flow with that hash, from the slots that ring.For
// returned for the scheduler. It returns 0 if all backends that it tries are full, or
// no backend exists.
func (c *Chooser) Choose(s service.Scheduler, slots []ring.Slot, hash uint32, look func(ring.ID) Server) ring.ID {
	if len(slots) == 0 {
		return 0
	}
	switch s {
	case service.RoundRobin, service.WeightedRoundRobin:
		return c.inTurn(slots, look)
	case service.LeastConn:
		return least(slots, func(id ring.ID) Server {
			s := look(id)
			s.Weight = 1
			return s
		})
	case service.WeightedLeastConn:
		return least(slots, look)
	case service.PowerOfTwo:
		return powerOfTwo(slots, hash, look)
	}
	return fromSlot(slots, slot(hash, len(slots)), look)
}

// inTurn goes round robin until it finds a backend that is not full.
func (c *Chooser) inTurn(slots []ring.Slot, look func(ring.ID) Server) ring.ID {
	for range min(len(slots), Tries) {
		id := slots[c.turn%uint32(len(slots))].First
		c.turn++
		if !look(id).Full() {
			return id
		}
	}
	return 0
}

// fromSlot returns the owner of slot i, or of the first slot after it whose owner is not
// full.
func fromSlot(slots []ring.Slot, i int, look func(ring.ID) Server) ring.ID {
	for n := range min(len(slots), Tries) {
		id := slots[(i+n)%len(slots)].First
		if id != 0 && !look(id).Full() {
			return id
		}
	}
	return 0
}

// least returns the backend with the fewest connections relative to its weight, or the
// first of equals. IPVS uses the same comparison (the kernel's ip_vs_lc.c and
// ip_vs_wlc.c).
func least(slots []ring.Slot, look func(ring.ID) Server) (best ring.ID) {
	var least Server
	for _, s := range slots {
		if its := look(s.First); !its.Full() && (best == 0 || its.lessLoaded(least)) {
			best, least = s.First, its
		}
	}
	return best
}

// goesOn is how many ended connections weigh as much as an open one. Ended connections
// spread short connections when few are open at any time.
const goesOn = 256

// load is the weight of the connections, as in IPVS (ip_vs_dest_conn_overhead), except
// that opening connections count as open, so that a burst does not go to a single
// backend.
func (s Server) load() uint64 { return uint64(s.Conns-s.Ended)*goesOn + uint64(s.Ended) }

// lessLoaded compares load per unit of weight.
func (s Server) lessLoaded(o Server) bool {
	return s.load()*uint64(o.Weight) < o.load()*uint64(s.Weight)
}

// powerOfTwo returns the less loaded backend of two slots (Mitzenmacher, "The Power of
// Two Choices in Randomized Load Balancing", 2001), or the first of equals. The flow's
// hash selects both slots, so every packet of a flow gets the same two.
func powerOfTwo(slots []ring.Slot, hash uint32, look func(ring.ID) Server) ring.ID {
	i := slot(hash, len(slots))
	first := slots[i].First
	if len(slots) == 1 {
		return fromSlot(slots, i, look)
	}
	j := slot(hash*secondThrow, len(slots)-1)
	if j >= i {
		j++
	}
	second := slots[j].First
	a, b := look(first), look(second)
	switch {
	case !b.Full() && (a.Full() || b.lessLoaded(a)):
		return second
	case !a.Full():
		return first
	}
	return fromSlot(slots, i, look)
}

// secondThrow derives a second hash: odd, so that no information is lost, and without a
// pattern, so that the upper bits depend on all bits.
const secondThrow = 0x9e3779b1
