// Package follow follows connections, one by one, through changes of the balancers
// that their packets go through and of the servers that they are for, and tells for
// each way to keep them whether they break. The rings are the product's own. It is
// for experiments in which packets would be too many.
package follow

import (
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim"
)

// Way is how balancers keep connections with their servers.
type Way int

// The ways.
const (
	// OwnChoice is a flow table, and for what it does not know a choice of the
	// balancer's own: rr, lc and their like.
	OwnChoice Way = iota
	// FlowTable is one over a Maglev ring, which says where an unknown flow goes.
	FlowTable
	// Maglev is the ring alone.
	Maglev
	// SecondChance is the ring with the older owners of its slots, and no memory
	// of flows.
	SecondChance
	Ways
)

// String names a way.
func (w Way) String() string {
	return [...]string{"own choice", "flow table", "maglev alone", "second chance"}[w]
}

// String names a kind.
func (k Kind) String() string { return [...]string{"plain", "resilient"}[k] }

// Set says of each way and kind of groups whether it is in.
type Set uint8

// Bit gives the set of one.
func Bit(k Kind, w Way) Set { return 1 << (int(k)*int(Ways) + int(w)) }

// Conn is a connection.
type Conn struct {
	hash   uint32 // of its addresses and ports, by the balancers
	router uint64 // and by the routers
	Server ring.ID
	// Born and Ends are when it was opened and will be closed, in seconds.
	Born, Ends float64
	// Broken says for which ways it is.
	Broken Set
	met    [Kinds]meetings
}

// meetings are the balancers that packets of a connection have met, and that may
// remember it, the latest ones.
type meetings struct {
	with [4]Balancer
	next uint8
}

func (m *meetings) had(b Balancer) bool {
	return m.with[0] == b || m.with[1] == b || m.with[2] == b || m.with[3] == b
}

func (m *meetings) add(b Balancer) {
	m.with[m.next&3] = b
	m.next++
}

// State is how things stand between two changes.
type State struct {
	// Groups are the routers', over which flows are spread evenly first.
	Groups []Group
	Farm   *Farm
	// Began is since which moment each balancer, by its number, has had its ring;
	// who is beyond its end since 0.
	Began []int
}

// Open gives a connection that opens now, of a service; number makes it another
// one than the others.
func (s *State) Open(service int, number uint64, born, ends float64) Conn {
	c := Conn{Born: born, Ends: ends}
	id := Mix(Mix(uint64(service)) + number)
	c.hash, c.router = schedule.Hash(flowOf(service, id)), Mix(id)
	c.Server = s.Farm.first(c.slot(s.Farm))
	for k := range Kinds {
		c.met[k].add(s.at(&c, k))
	}
	return c
}

// flowOf gives a client of the Internet, with its port.
func flowOf(vip int, id uint64) schedule.Flow {
	var a, v [4]byte
	binary.BigEndian.PutUint32(a[:], uint32(id))
	binary.BigEndian.PutUint32(v[:], 203<<24|uint32(vip))
	return schedule.Flow{
		Client: netip.AddrPortFrom(netip.AddrFrom4(a), uint16(id>>32)),
		Key:    service.Key{VIP: netip.AddrFrom4(v), Port: 443, Protocol: service.TCP},
	}
}

func (c *Conn) slot(f *Farm) int { return int(uint64(c.hash) * uint64(f.size) >> 32) }

// at gives the balancer that a connection's packets meet.
func (s *State) at(c *Conn, k Kind) Balancer {
	g := &s.Groups[c.router>>32*uint64(len(s.Groups))>>32]
	return g.At(k, uint32(c.router))
}

// Step sends a packet of a connection, and says whether its server is still there.
// Where it is not, the connection is lost whatever the balancers do.
func (s *State) Step(c *Conn) (served bool) {
	if !s.Farm.there[c.Server] {
		return false
	}
	slot := c.slot(s.Farm)
	for k := range Kinds {
		b := s.at(c, k)
		here := s.Farm.ring(s.began(b))[slot]
		if !c.met[k].had(b) {
			if here.First != c.Server {
				c.Broken |= Bit(k, FlowTable)
			}
			if Mix(uint64(b)<<32|uint64(c.hash))%uint64(s.Farm.serving) != 0 {
				c.Broken |= Bit(k, OwnChoice)
			}
			c.met[k].add(b)
		}
		if here.First != c.Server {
			c.Broken |= Bit(k, Maglev)
			if !named(here, c.Server) {
				c.Broken |= Bit(k, SecondChance)
			}
		}
	}
	return true
}

func named(s ring.Slot, id ring.ID) bool {
	for _, older := range s.Older {
		if older == id {
			return true
		}
	}
	return false
}

func (s *State) began(b Balancer) int {
	if int(b) < len(s.Began) {
		return s.Began[b]
	}
	return 0
}

// Mix gives 64 bits that look like chance, by the finaliser of SplitMix64 (Steele,
// Lea, Flood, OOPSLA 2014).
func Mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// NewStream gives the random numbers of some thing, of two numbers.
func NewStream(a, b uint64) *sim.Stream { return sim.NewStream(uint32(Mix(Mix(a)+b) >> 33)) }

// Lives are how long connections live: log-normally, most shortly and a few for
// very long.
type Lives struct {
	// New gives the life of a connection that opens, in seconds.
	New sim.Draw
	met sim.Draw
}

// NewLives gives lives of a mean, in seconds; sigma is the standard deviation of
// their logarithm.
func NewLives(mean, sigma float64) Lives {
	square := sigma * sigma
	return Lives{sim.Lognormal(rounded(mean*math.Exp(-square/2)), sigma), sim.Lognormal(rounded(mean*math.Exp(square/2)), sigma)}
}

// rounded takes off what machines may compute differently.
func rounded(x float64) float64 { return float64(float32(x)) }

// Met gives the life of a connection that is met at some moment, of which longer
// ones are met more often, and how much of it is over.
func (l Lives) Met(s *sim.Stream) (life, over float64) {
	life = l.met(s)
	return life, life * s.Float()
}
