package follow

import (
	"slices"

	"github.com/fairlead/fairlead/lab/sim/resilient"
)

// Balancer is a balancer's number, from 1.
type Balancer = uint32

// Group is a router's next hops, for both kinds of groups. It does not change:
// With gives the next one.
type Group struct {
	hops    []Balancer
	buckets []Balancer
}

// Kind is how a router divides flows among next hops.
type Kind int

// Kinds of groups.
const (
	// Plain gives each next hop a range of the hash (RFC 2992), as Linux does and
	// most hardware.
	Plain Kind = iota
	// Resilient has buckets that stay with their next hop while it is there, as
	// Linux' resilient groups with idle timer 0: what the product's router sets.
	Resilient
	Kinds
)

// NewGroup gives a group of next hops, in the order of their addresses.
func NewGroup(hops []Balancer, buckets int) Group {
	return Group{buckets: make([]Balancer, buckets)}.With(hops)
}

// With gives the group after its next hops have become these.
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

// At gives the balancer that a flow with that hash goes to.
func (g *Group) At(kind Kind, hash uint32) Balancer {
	if kind == Resilient {
		return g.buckets[uint64(hash)*uint64(len(g.buckets))>>32]
	}
	return g.hops[uint64(hash)*uint64(len(g.hops))>>32]
}

// Hops gives the next hops.
func (g *Group) Hops() []Balancer { return g.hops }

// Fullest gives the greatest share of the flows that a next hop gets, by the mean.
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
