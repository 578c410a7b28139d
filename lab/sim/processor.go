package sim

import (
	"github.com/fairlead/fairlead/lab/sim/stochastic"
)

// Processor is the processing capacity of a load balancer or a router.
type Processor struct {
	// Cores handle one packet each at a time, which takes Takes seconds.
	Cores int
	Takes stochastic.Draw
	// Queue is the maximum number of packets that wait for a core; 0 means no limit.
	Queue int
}

type processor[T Time] struct {
	Processor
	busy    int
	waiting fifo
	turn    uint32 // identifies the current life; later ones discard its packets
}

// Processor adds a processor to a load balancer, a router or a switch. Without one,
// packets take no time there, as in ns-2.
func (n *Net[T]) Processor(of Node, p Processor) {
	p.Cores = max(p.Cores, 1)
	n.nodes[of].processor, n.nodes[of].special = &processor[T]{Processor: p}, true
}

// process accepts a packet.
func (n *Net[T]) process(at Node, p int32) {
	c := n.nodes[at].processor
	switch {
	case c.busy < c.Cores:
		c.busy++
		n.start(at, p)
	case c.Queue > 0 && c.waiting.len() >= c.Queue:
		n.lose(queueFull, at, p)
	default:
		c.waiting.push(p)
	}
}

func (n *Net[T]) start(at Node, p int32) {
	c, b := n.nodes[at].processor, n.nodes[at].balancer
	takes := c.Takes(n.random)
	if q := &n.pool.all[p]; b != nil && b.chains != nil && (q.to == at || b.serves(q.to)) {
		takes += float64(b.chains.Looks * float64(n.walk(b, q.flow)))
	}
	n.q.At(n.q.Now+n.span(takes), n.q.Reserve(), event{kind: processed, who: at, what: p, turn: c.turn})
}

// processed handles a packet that a core has completed.
func (n *Net[T]) processed(at Node, p int32, turn uint32) {
	c := n.nodes[at].processor
	if turn != c.turn {
		n.lose(dead, at, p)
		return
	}
	n.pool.all[p].ready = true
	n.arrive(at, p)
	if c.waiting.len() > 0 {
		n.start(at, c.waiting.pop())
		return
	}
	c.busy--
}
