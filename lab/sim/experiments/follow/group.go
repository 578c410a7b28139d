package follow

import (
	"slices"

	"github.com/fairlead/fairlead/lab/sim/resilient"
)

// Balancer is a load balancer's number, starting at 1.
type Balancer = uint32

// Group contains a router's next hops, for both kinds of groups. It is immutable: With
// returns the next one.
type Group struct {
	hops    []Balancer
	buckets []Balancer
}

// Kind is how a router spreads flows over next hops.
type Kind int

// Kinds of groups.
const (
	// Plain assigns a range of hash values to each next hop (RFC 2992), as Linux and most
	// hardware do.
	Plain Kind = iota
	// Resilient has buckets that stay with their next hop while it exists, like Linux
	// resilient groups with idle timer 0, which the product's router configures.
	Resilient
	Kinds
)

// NewGroup returns a group of next hops, in the order of their addresses.
func NewGroup(hops []Balancer, buckets int) Group {
	return Group{buckets: make([]Balancer, buckets)}.With(hops)
}

// With returns the group after its next hops have changed to hops.
func (g Group) With(hops []Balancer) Group {
	next := Group{hops, slices.Clone(g.buckets)}
	weights := slices.Repeat([]uint32{1}, len(hops))
	shares := resilient.NewShares(hops, weights, len(g.buckets), func(i int) Balancer { return g.buckets[i] })
	for i, b := range g.buckets {
		if stays, _ := shares.Stays(b); !stays {
			next.buckets[i] = shares.Move(b, b)
		}
	}
	return next
}

// At returns the load balancer for a flow with that hash.
func (g *Group) At(kind Kind, hash uint32) Balancer {
	if kind == Resilient {
		return g.buckets[uint64(hash)*uint64(len(g.buckets))>>32]
	}
	return g.hops[uint64(hash)*uint64(len(g.hops))>>32]
}

// Hops returns the next hops.
func (g *Group) Hops() []Balancer { return g.hops }

// Fullest returns the largest share of flows of a next hop, divided by the mean.
func (g *Group) Fullest(kind Kind) float64 {
	if kind == Plain {
		return 1
	}
	has, most := map[Balancer]int{}, 0
	for _, b := range g.buckets {
		has[b]++
		most = max(most, has[b])
	}
	return float64(most*len(g.hops)) / float64(len(g.buckets))
}
