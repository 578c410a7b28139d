// Package follow follows connections one by one through changes of load balancers and
// servers, and determines for each way of connection tracking whether they break. It uses
// the product's own Maglev tables. It is for experiments with too many packets to
// simulate.
package follow

import (
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
)

// Way is how load balancers preserve connections.
type Way int

// The ways.
const (
	// OwnChoice is a flow table, with a separate choice by each load balancer for unknown
	// flows: rr, lc and similar schedulers.
	OwnChoice Way = iota
	// FlowTable is a flow table, with a Maglev table for unknown flows.
	FlowTable
	// Maglev is only the Maglev table.
	Maglev
	// SecondChance is the Maglev table with the previous owners of its slots, without
	// flow tracking.
	SecondChance
	Ways
)

// String returns the name of a way.
func (w Way) String() string {
	return [...]string{"own choice", "flow table", "maglev alone", "second chance"}[w]
}

// String returns the name of a kind.
func (k Kind) String() string { return [...]string{"plain", "resilient"}[k] }

// Set is a set of combinations of a way and a kind of group.
type Set uint8

// Bit returns the set with one combination.
func Bit(k Kind, w Way) Set { return 1 << (int(k)*int(Ways) + int(w)) }

// Conn is a connection.
type Conn struct {
	hash   uint32 // of its addresses and ports, for the load balancers
	router uint64 // the same for the routers
	Server ring.ID
	// Born and Ends are the times at which it opens and closes, in seconds.
	Born, Ends float64
	// Broken contains the combinations for which it is broken.
	Broken Set
	met    [Kinds]meetings
}

// meetings contains the last load balancers that received packets of a connection and may
// track it.
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

// State is the state between two changes.
type State struct {
	// Groups contains the routers' groups, over which flows are spread evenly first.
	Groups []Group
	Farm   *Farm
	// Began contains the start time of each load balancer, by number. Load balancers
	// beyond its end started at 0.
	Began []int
}

// Open returns a connection of a service that opens now. number distinguishes it from
// others.
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

// flowOf returns a flow of an Internet client, with its port.
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

// at returns the load balancer that receives a connection's packets.
func (s *State) at(c *Conn, k Kind) Balancer {
	g := &s.Groups[c.router>>32*uint64(len(s.Groups))>>32]
	return g.At(k, uint32(c.router))
}

// Step sends a packet of a connection, and reports whether its server still exists. If it
// does not, the connection is lost whatever the load balancers do.
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

// Mix returns 64 pseudo-random bits, using the finalizer of SplitMix64 (Steele, Lea,
// Flood, OOPSLA 2014).
func Mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// NewStream returns the stream of random numbers identified by two numbers.
func NewStream(a, b uint64) *stochastic.Stream {
	return stochastic.NewStream(uint32(Mix(Mix(a)+b) >> 33))
}

// Lives is the log-normal distribution of connection lifetimes: most are short, and a few
// very long.
type Lives struct {
	// New draws the lifetime of a connection that opens, in seconds.
	New stochastic.Draw
	met stochastic.Draw
}

// NewLives returns lifetimes with the given mean in seconds. sigma is the standard
// deviation of their logarithm.
func NewLives(mean, sigma float64) Lives {
	square := sigma * sigma
	return Lives{stochastic.Lognormal(rounded(mean*math.Exp(-square/2)), sigma), stochastic.Lognormal(rounded(mean*math.Exp(square/2)), sigma)}
}

// rounded removes the bits that may differ between machines.
func rounded(x float64) float64 { return float64(float32(x)) }

// Met draws the lifetime of a connection that is open at a random time, and how much of
// it is over. Longer connections are more likely to be open.
func (l Lives) Met(s *stochastic.Stream) (life, over float64) {
	life = l.met(s)
	return life, life * s.Float()
}
