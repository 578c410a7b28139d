package sim

import (
	"fmt"
	"slices"
)

// hop is the first step of a way to a node: by a link, or by a station of a LAN.
type hop struct {
	link, station int32 // none where it is the other
	next          Node
}

var noHop = hop{none, none, none}

// DefaultQueue is the limit of a queue of which nothing is said: one packet less
// waits in it.
const DefaultQueue = 100

func limit(queue int) int {
	if queue == 0 {
		return DefaultQueue
	}
	return queue
}

// Link joins two nodes by a line, in both directions: bits a second, the delay in
// seconds, and the limit of the queue in front of either (0: DefaultQueue).
func (n *Net[T]) Link(a, b Node, rate, delay float64, queue int) {
	l := n.line(rate, delay)
	for _, ends := range [][2]Node{{a, b}, {b, a}} {
		n.links = append(n.links, link[T]{line: l, from: ends[0], to: ends[1], limit: limit(queue)})
		n.nodes[ends[0]].doors = append(n.nodes[ends[0]].doors, hop{int32(len(n.links) - 1), none, ends[1]})
	}
}

// Attached is a node at a LAN, with the limit of its interface's queue (0:
// DefaultQueue).
type Attached struct {
	Node  Node
	Queue int
}

// SharedLAN joins nodes by a medium that they share: bits a second, and the delay
// of the link layer in seconds, which a packet has on its way down and on its way
// up.
func (n *Net[T]) SharedLAN(rate, delay float64, nodes []Attached) {
	id := len(n.lans)
	l := n.newLAN(rate, delay)
	nodes = slices.Clone(nodes)
	slices.Reverse(nodes) // who joined last hears first, as in ns-2
	for i, a := range nodes {
		l.stations = append(l.stations, station{node: a.Node, held: none, attempts: 1, limit: limit(a.Queue)})
		n.nodes[a.Node].doors = append(n.nodes[a.Node].doors, hop{none, stationOf(id, i), none})
	}
	l.gapEnds = make([]T, len(nodes))
	n.lans = append(n.lans, l)
}

// route finds the shortest way from every node to every other that it sends to;
// of equal ones it is the one by the door that was made first. No way leads
// through a client, nor through a server that is not a balancer, too.
func (n *Net[T]) route() error {
	seen := make([]uint32, len(n.nodes))
	for i := range n.nodes {
		from := &n.nodes[i]
		if from.role == clientNode {
			if from.load == nil && n.q.lanes[from.lane].delay <= 0 {
				return fmt.Errorf("client %s: has no span between two requests: give it Every above 0, or a Load", from.name)
			}
			if from.ways = n.wayTo(Node(i), from.target, seen); from.ways == nil {
				return fmt.Errorf("client %s: no way leads from there to %s", from.name, n.nodes[from.target].name)
			}
			continue
		}
		from.ways = make([]hop, len(n.nodes))
		for to := range from.ways {
			from.ways[to] = noHop
		}
		n.search(Node(i), seen, func(to Node, first hop) bool {
			from.ways[to] = first
			return true
		})
	}
	return n.checkWays()
}

// wayTo gives a client's hops, which is one only.
func (n *Net[T]) wayTo(from, to Node, seen []uint32) (ways []hop) {
	n.search(from, seen, func(at Node, first hop) bool {
		if at == to {
			ways = []hop{first}
		}
		return at != to
	})
	return ways
}

// checkWays finds who cannot reach those whom it has to.
func (n *Net[T]) checkWays() error {
	for i := range n.nodes {
		b := n.nodes[i].balancer
		if b == nil {
			continue
		}
		for _, s := range b.servers {
			if n.nodes[i].ways[s] == noHop {
				return fmt.Errorf("balancer %s: no way leads from there to its server %s", n.nodes[i].name, n.nodes[s].name)
			}
		}
	}
	return nil
}

// search visits the nodes that can be reached, the nearest first, with the first
// hop of the way; until visit is false.
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

// doors gives the hops to a node's neighbours.
func (n *Net[T]) doors(from Node) (all []hop) {
	for _, d := range n.nodes[from].doors {
		if d.link != none {
			all = append(all, d)
			continue
		}
		for _, s := range n.lans[d.station>>16].stations {
			if s.node != from {
				all = append(all, hop{none, d.station, s.node})
			}
		}
	}
	return all
}

// forward sends a packet on.
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
	k.hop = h.next
	n.q.after(n.lans[h.station>>16].down, event{kind: enqueue, who: h.station, what: p})
}
