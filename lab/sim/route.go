package sim

import (
	"fmt"
	"maps"
	"slices"
)

// hop is the first step of a path to a node: a link, or a station of a LAN.
type hop struct {
	link, station int32 // none for the one that is not used
	next          Node
}

var noHop = hop{none, none, none}

// DefaultQueue is the default limit of a queue. One packet less can wait in it.
const DefaultQueue = 100

func limit(queue int) int {
	if queue == 0 {
		return DefaultQueue
	}
	return queue
}

// Line is the number of a line, from 0, in the order in which lines were created.
type Line = int32

// Link connects two nodes by a line, in both directions. It has a rate in bit/s, a delay
// in seconds, and a limit for the queue at either end (0: DefaultQueue).
func (n *Net[T]) Link(a, b Node, rate, delay float64, queue int) Line {
	return n.join(a, b, n.line(rate, delay, false), queue)
}

func (n *Net[T]) join(a, b Node, line int32, queue int) Line {
	for _, ends := range [][2]Node{{a, b}, {b, a}} {
		n.links = append(n.links, link[T]{line: line, from: ends[0], to: ends[1], limit: limit(queue)})
		n.nodes[ends[0]].doors = append(n.nodes[ends[0]].doors, hop{int32(len(n.links) - 1), none, ends[1]})
	}
	return Line(len(n.links)/2 - 1)
}

// Attached is a node on a LAN, with the limit of its interface's queue (0: DefaultQueue).
type Attached struct {
	Node  Node
	Queue int
}

// SharedLAN connects nodes by a shared medium, with a rate in bit/s and the delay of the
// link layer in seconds, which applies to both sending and receiving.
func (n *Net[T]) SharedLAN(rate, delay float64, nodes []Attached) {
	id := len(n.lans)
	l := n.newLAN(rate, delay)
	nodes = slices.Clone(nodes)
	slices.Reverse(nodes) // the last one attached receives first, as in ns-2
	for i, a := range nodes {
		l.stations = append(l.stations, station{node: a.Node, held: none, attempts: 1})
		l.backlogs = append(l.backlogs, backlog{limit: limit(a.Queue)})
		n.nodes[a.Node].doors = append(n.nodes[a.Node].doors, hop{none, stationOf(id, i), none})
	}
	l.gapEnds = make([]T, len(nodes))
	n.lans = append(n.lans, l)
}

// route finds the shortest path from every node to every other that it sends to. Of
// equally short paths it takes the one through the first door created. No path leads
// through a client, or through a server that is not also a load balancer.
func (n *Net[T]) route() error {
	seen := make([]uint32, len(n.nodes))
	for i := range n.nodes {
		n.routeFrom(Node(i), seen)
	}
	return n.checkWays()
}

// routeFrom finds a node's paths. A client has only one.
func (n *Net[T]) routeFrom(id Node, seen []uint32) {
	from := &n.nodes[id]
	switch from.role {
	case vipNode:
	case clientNode:
		if from.ways = n.wayTo(id, from.target, seen); from.ways == nil {
			from.ways = []hop{noHop}
		}
	default:
		from.ways = make([]hop, len(n.nodes))
		for to := range from.ways {
			from.ways[to] = noHop
		}
		n.search(id, seen, func(to Node, first hop) bool {
			from.ways[to] = first
			return true
		})
	}
}

// wayTo returns a client's only hop.
func (n *Net[T]) wayTo(from, to Node, seen []uint32) (ways []hop) {
	n.search(from, seen, func(at Node, first hop) bool {
		if at == to {
			ways = []hop{first}
		}
		return at != to
	})
	return ways
}

// checkWays returns an error if a node cannot reach another that it sends to.
func (n *Net[T]) checkWays() error {
	for i := range n.nodes {
		k := &n.nodes[i]
		switch {
		case k.role == clientNode:
			if k.load == nil && n.q.Delay(k.lane) <= 0 {
				return fmt.Errorf("client %s: has no span between two requests: give it Every above 0, or a Load", k.name)
			}
			if n.nodes[k.target].role == routerNode {
				return fmt.Errorf("client %s: %s is a router, which serves nobody: let it ask for a VIP", k.name, n.nodes[k.target].name)
			}
			if k.ways[0] == noHop {
				return fmt.Errorf("client %s: no way leads from there to %s", k.name, n.nodes[k.target].name)
			}
		case k.balancer != nil:
			for _, s := range k.balancer.Servers {
				if k.ways[s.Node] == noHop {
					return fmt.Errorf("balancer %s: no way leads from there to its server %s", k.name, n.nodes[s.Node].name)
				}
			}
		case k.router != nil:
			if err := n.checkHops(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkHops returns an error for the first next hop, by number, that a router cannot
// reach.
func (n *Net[T]) checkHops(k *node[T]) error {
	for _, vip := range slices.Sorted(maps.Keys(k.router.groups)) {
		for _, h := range k.router.groups[vip].Hops {
			if k.ways[h.Node] == noHop {
				return fmt.Errorf("router %s: no way leads from there to its next hop %s", k.name, n.nodes[h.Node].name)
			}
		}
	}
	return nil
}

// search visits all reachable nodes, the nearest first, with the first hop of the path,
// until visit returns false.
func (n *Net[T]) search(from Node, seen []uint32, visit func(Node, hop) bool) {
	mark := uint32(from) + 1
	seen[from] = mark
	type reached struct {
		at    Node
		first hop
	}
	queue := []reached{{from, noHop}}
	for len(queue) > 0 {
		r := queue[0]
		queue = queue[1:]
		if r.at != from && !n.nodes[r.at].forwards() {
			continue
		}
		for _, h := range n.doors(r.at) {
			if seen[h.next] == mark {
				continue
			}
			seen[h.next] = mark
			first := r.first
			if r.at == from {
				first = h
			}
			if !visit(h.next, first) {
				return
			}
			queue = append(queue, reached{h.next, first})
		}
	}
}

// doors returns the usable hops to a node's neighbors.
func (n *Net[T]) doors(from Node) (all []hop) {
	k := &n.nodes[from]
	for _, d := range k.doors {
		if d.link != none {
			if !n.links[d.link].cut && !n.nodes[d.next].dead {
				all = append(all, d)
			}
			continue
		}
		for _, s := range n.lans[d.station>>16].stations {
			if s.node != from && !n.nodes[s.node].dead {
				all = append(all, hop{none, d.station, s.node})
			}
		}
	}
	for _, vip := range n.addresses(k) {
		all = append(all, hop{none, none, vip})
	}
	return all
}

// addresses returns the VIPs that are reached at a node.
func (n *Net[T]) addresses(k *node[T]) []Node {
	switch {
	case k.balancer != nil:
		return k.balancer.Serves
	case k.router != nil:
		return slices.Sorted(maps.Keys(k.router.groups))
	}
	return nil
}

// forward sends a packet to the next hop.
func (n *Net[T]) forward(at Node, p int32) {
	k, from := &n.pool.all[p], &n.nodes[at]
	h := from.ways[0]
	if from.role != clientNode {
		h = from.ways[k.to]
	}
	if h.link != none {
		n.send(h.link, p)
		return
	}
	if h.station == none {
		n.lose(unserved, at, p)
		return
	}
	k.hop = h.next
	n.q.After(n.lans[h.station>>16].down, event{kind: enqueue, who: h.station, what: p})
}
