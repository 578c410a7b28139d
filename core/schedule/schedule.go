// Package schedule says which server a flow gets: the schedulers as pure state
// machines, without packets, clocks or kernels. The data planes do the same in
// their own ways and are compared with it.
package schedule

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
)

// Flow is a client's side of a connection and what it addresses.
type Flow struct {
	Client netip.AddrPort
	service.Key
}

// String gives "192.168.0.2:40000 to TCP 10.1.1.1:80".
func (f Flow) String() string { return f.Client.String() + " to " + f.Key.String() }

// By is what of a flow says its slot.
type By uint8

// What a hash can be of.
const (
	ByFlow   By = iota // addresses, ports and protocol
	ByClient           // the client's address: sh, and affinity
	ByVIP              // the VIP: dh
)

// HashBy gives the hash of that of a flow.
func HashBy(by By, f Flow) uint32 {
	switch by {
	case ByClient:
		return AddrHash(f.Client.Addr())
	case ByVIP:
		return AddrHash(f.VIP)
	}
	return Hash(f)
}

// Slot gives the slot of a hash: the same for every packet of a flow, on every
// balancer. slots must not be empty.
func Slot(slots []ring.Slot, hash uint32) ring.Slot { return slots[slot(hash, len(slots))] }

// Maglev gives the slot of a flow, by all of it.
func Maglev(slots []ring.Slot, f Flow) ring.Slot { return Slot(slots, Hash(f)) }

// Server is what a scheduler knows of one.
type Server struct {
	Weight uint32
	// Conns are the flows that it is remembered to have: every entry of the
	// flow table is one.
	Conns uint32
	// MaxConns is how many it may have; 0: any number.
	MaxConns uint32
	// Ended are those of Conns of which a FIN or RST was seen, of either side.
	Ended uint32
}

// Full says that a server gets no new flows for now.
func (s Server) Full() bool { return s.MaxConns > 0 && s.Conns >= s.MaxConns }

// Tries is how many slots are asked, one after the other, for a server that is
// not full; what is beyond them has to wait for a next packet.
const Tries = 128

// Chooser gives servers to new flows that will be remembered. Its zero value is
// ready.
type Chooser struct {
	turn uint32
}

// Choose gives a server to a flow with that hash, from the slots that ring.For
// has for the scheduler; 0 where all that it asks are full, or there are none.
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

// inTurn takes turns until one is of a server that is not full.
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

// fromSlot gives the owner of slot i, or of the first behind it that is not
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

// least gives the server with the fewest connections for its weight, the first
// of equals. IPVS has the same comparison (the kernel's ip_vs_lc.c and ip_vs_wlc.c).
func least(slots []ring.Slot, look func(ring.ID) Server) (best ring.ID) {
	var least Server
	for _, s := range slots {
		if its := look(s.First); !its.Full() && (best == 0 || its.lessLoaded(least)) {
			best, least = s.First, its
		}
	}
	return best
}

// goesOn is how many connections that have ended weigh as much as one that goes
// on. Those share short connections out where few go on at any time.
const goesOn = 256

// load is what connections weigh: as in IPVS (ip_vs_dest_conn_overhead), but that
// one which is opening goes on, too: a burst is not for one server alone.
func (s Server) load() uint64 { return uint64(s.Conns-s.Ended)*goesOn + uint64(s.Ended) }

// lessLoaded compares what connections weigh for each unit of weight.
func (s Server) lessLoaded(o Server) bool {
	return s.load()*uint64(o.Weight) < o.load()*uint64(s.Weight)
}

// powerOfTwo gives the less loaded of two slots (Mitzenmacher, "The Power of Two
// Choices in Randomized Load Balancing", 2001), the first of equals. The flow's
// hash is the dice: who has seen a flow knows its two.
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

// secondThrow makes another hash of a hash: odd, so that none is lost, and
// without a pattern, so that the upper bits depend on all.
const secondThrow = 0x9e3779b1
