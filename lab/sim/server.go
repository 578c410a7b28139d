package sim

import (
	"github.com/fairlead/fairlead/lab/sim/stochastic"
)

// Server answers requests.
type Server struct {
	Name string
	// Cores serve one request each at a time, first come, first served. A request takes
	// Takes seconds, plus the transfer time of the requested bytes at Speed, in bytes per
	// second. Without either, replies are immediate, as in ns-2.
	Cores int
	Takes stochastic.Draw
	Speed float64
	// Queue is the maximum number of requests that wait for a core; 0 means no limit.
	Queue int
}

type server[T Time] struct {
	Server
	busy    int
	waiting fifo
	known   bitset // flows with a connection here
	turn    uint32 // identifies the current life; later ones discard its requests
}

// Server adds a server.
func (n *Net[T]) Server(s Server) Node {
	id, k := n.add(s.Name, serverNode)
	s.Cores = max(s.Cores, 1)
	k.server = &server[T]{Server: s}
	return id
}

// take assigns a request to a core, now or later.
func (n *Net[T]) take(at Node, p int32) {
	s := n.nodes[at].server
	switch {
	case s.Takes == nil && s.Speed == 0:
		n.answer(at, p)
	case s.busy < s.Cores:
		s.busy++
		n.work(at, p)
	case s.Queue > 0 && s.waiting.len() >= s.Queue:
		n.refuse(at, p)
	default:
		s.waiting.push(p)
	}
}

func (n *Net[T]) work(at Node, p int32) {
	s, takes := n.nodes[at].server, 0.0
	if s.Takes != nil {
		takes = s.Takes(n.random)
	}
	if s.Speed > 0 {
		takes += float64(float64(n.pool.extra(p).asks) / s.Speed)
	}
	n.q.At(n.q.Now+n.span(takes), n.q.Reserve(), event{kind: served, who: at, what: p, turn: s.turn})
}

func (n *Net[T]) served(at Node, p int32, turn uint32) {
	s := n.nodes[at].server
	if turn != s.turn {
		n.lose(dead, at, p)
		return
	}
	n.answer(at, p)
	if s.waiting.len() > 0 {
		n.work(at, s.waiting.pop())
		return
	}
	s.busy--
}

// answer turns a request into its replies.
func (n *Net[T]) answer(at Node, p int32) {
	q := &n.pool.all[p]
	if q.carries == request {
		n.conns[q.flow].answered = n.pool.extra(p).number
	}
	switch q.replies {
	case 0:
		n.pool.consume(p)
	case 1:
		n.turn(at, p, n.config.PacketBytes)
	default:
		n.answerAll(at, p)
	}
}

// answerAll sends a reply of several packets. The first one reuses the request.
func (n *Net[T]) answerAll(at Node, p int32) {
	last := int32(n.pool.all[p].replies) - 1
	for i := int32(0); i < last; i++ {
		next := n.pool.copy(p)
		n.pool.made++
		if n.pool.all[next].carries != datagram {
			n.pool.extra(next).index++
		}
		n.turn(at, p, n.config.PacketBytes)
		p = next
	}
	n.turn(at, p, n.config.PacketBytes)
}

// turn sends a packet back as its reply.
func (n *Net[T]) turn(at Node, p int32, bytes int) {
	q := &n.pool.all[p]
	if q.to = q.via; q.to == none {
		q.to = q.client
	}
	q.size, q.via, q.reply = int32(bytes), none, true
	if q.more {
		e := n.pool.extra(p)
		e.vip, e.chained = none, 0
	}
	n.nodes[at].Sent++
	n.forward(at, p)
}
