package sim

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/lab/sim/resilient"
)

// Division is how a router spreads flows over next hops.
type Division uint8

// The divisions.
const (
	// Modulo takes the hash modulo the hops, each repeated by its weight. Any change
	// moves nearly all flows.
	Modulo Division = iota
	// Threshold assigns a range of hash values to each hop, as Linux does for plain
	// groups (RFC 2992). A change moves at most half of the flows.
	Threshold
	// Resilient has buckets, like Linux resilient groups. As few of them as possible
	// change their hop, and only when they are idle.
	Resilient
)

// Group is a route to an address with several next hops.
type Group struct {
	Division Division
	// Hops are load balancers that serve the address, or routers that have a route to it.
	// Weight 0 means 1. They are ordered by their numbers, independent of the given
	// order, because another order would move flows.
	Hops []Weighted
	// Buckets is the number of buckets of a resilient group; 0 means 512, as in the
	// product.
	Buckets int
	// Idle is how long a bucket must receive no packet before it may move. Unbalanced is
	// how long shares may be uneven before it must; 0 means forever. Both are in seconds.
	Idle, Unbalanced float64
}

// defaultBuckets is the default of package fib.
const defaultBuckets = 512

type router[T Time] struct {
	seed   uint32
	groups map[Node]*group[T] // by destination
}

// group contains the hops, and the lookup structure of its division.
type group[T Time] struct {
	Group
	turns  []Node   // Modulo: the hops, each repeated by its weight
	upper  []uint64 // Threshold: the end of each hop's range
	table  []bucket[T]
	shares *resilient.Shares[Node]
	timers resilience[T]
}

// Router adds a router. Routers with the same seed hash equally: a flow that moves to
// another one takes the same hop. All routers initially know the paths to all nodes; see
// Reroute.
func (n *Net[T]) Router(name string, seed uint32) Node {
	id, k := n.add(name, routerNode)
	k.special = true
	k.router = &router[T]{seed: seed, groups: map[Node]*group[T]{}}
	return id
}

// Route adds a route to a VIP on a router.
func (n *Net[T]) Route(at, vip Node, g Group) error {
	r := n.nodes[at].router
	switch {
	case r == nil:
		return fmt.Errorf("%s: is no router, and has no routes", n.nodes[at].name)
	case n.nodes[vip].role != vipNode:
		return fmt.Errorf("router %s: a route is to a VIP, which %s is not", n.nodes[at].name, n.nodes[vip].name)
	}
	if g.Buckets == 0 {
		g.Buckets = defaultBuckets
	}
	k := &group[T]{Group: g}
	k.timers.idle, k.timers.unbalanced = n.span(g.Idle), n.span(g.Unbalanced)
	if g.Division == Resilient {
		k.table = make([]bucket[T], g.Buckets)
		for i := range k.table {
			k.table[i].hop = none
		}
	}
	r.groups[vip] = k
	return n.SetHops(at, vip, g.Hops)
}

// SetHops changes the next hops of a router's route to a VIP. Without any, packets to the
// VIP are lost there.
func (n *Net[T]) SetHops(at, vip Node, hops []Weighted) error {
	g := n.group(at, vip)
	if g == nil {
		return fmt.Errorf("router %s: has no route to %s", n.nodes[at].name, n.nodes[vip].name)
	}
	g.Hops = slices.Clone(hops)
	for i := range g.Hops {
		h := &g.Hops[i]
		if role := n.nodes[h.Node].role; role != balancerNode && role != routerNode {
			return fmt.Errorf("router %s: next hop %s is neither a balancer nor a router", n.nodes[at].name, n.nodes[h.Node].name)
		}
		h.Weight = max(h.Weight, 1)
	}
	slices.SortFunc(g.Hops, func(a, b Weighted) int { return int(a.Node - b.Node) })
	switch g.Division {
	case Modulo:
		g.turns = g.turns[:0]
		for _, h := range g.Hops {
			g.turns = append(g.turns, slices.Repeat([]Node{h.Node}, int(h.Weight))...)
		}
	case Threshold:
		g.upper = resilient.Bounds(1<<32, g.weights())
	case Resilient:
		n.rebalance(at, vip, g)
	}
	return nil
}

func (n *Net[T]) group(at, vip Node) *group[T] {
	if r := n.nodes[at].router; r != nil {
		return r.groups[vip]
	}
	return nil
}

func (g *group[T]) weights() []uint32 {
	all := make([]uint32, len(g.Hops))
	for i, h := range g.Hops {
		all[i] = h.Weight
	}
	return all
}

// hop returns the next hop for a hash.
func (n *Net[T]) hop(g *group[T], hash uint32) Node {
	switch {
	case len(g.Hops) == 0:
		return none
	case g.Division == Modulo:
		return g.turns[hash%uint32(len(g.turns))]
	case g.Division == Threshold:
		for i, end := range g.upper {
			if uint64(hash) < end {
				return g.Hops[i].Node
			}
		}
		return g.Hops[len(g.Hops)-1].Node
	}
	b := &g.table[hash%uint32(len(g.table))]
	b.used = n.q.Now
	return b.hop
}

// routeOn forwards a packet, through the group of its destination if there is one.
func (n *Net[T]) routeOn(at Node, p int32) {
	q, r := &n.pool.all[p], n.nodes[at].router
	vip := q.to
	if vip == at {
		vip = n.pool.extra(p).vip
	}
	g := r.groups[vip]
	if g == nil {
		if vip == none || q.to == at {
			n.lose(unserved, at, p)
			return
		}
		n.forward(at, p)
		return
	}
	n.nodes[at].Got++
	to := n.hop(g, spread(n.flows[q.flow].hash, r.seed))
	if to == none {
		n.lose(unserved, at, p)
		return
	}
	q.to = to
	if n.nodes[to].router != nil {
		n.pool.extra(p).vip = vip
	}
	n.forward(at, p)
}
