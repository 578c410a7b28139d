package sim

// Server is who answers requests.
type Server struct {
	Name string
	// Cores serve one request each at a time, first come, first served. It takes
	// Takes seconds, and the time of the bytes that are asked for at Speed, which
	// is in bytes a second. Without either answers are there at once, as in ns-2.
	Cores int
	Takes Draw
	Speed float64
	// Queue is how many requests may wait for a core; 0: any number.
	Queue int
}

type server[T Time] struct {
	Server
	busy    int
	waiting fifo
	known   bitset // flows with a connection here
	turn    uint32 // of the life that requests are served in
}

// Server adds one.
func (n *Net[T]) Server(s Server) Node {
	id, k := n.add(s.Name, serverNode)
	s.Cores = max(s.Cores, 1)
	k.server = &server[T]{Server: s}
	return id
}

// serve takes a request in.
func (n *Net[T]) serve(at Node, p int32) {
	if n.pool.all[p].carries != datagram {
		n.accept(at, p)
		return
	}
	n.take(at, p)
}

// take gives a request to a core, now or later.
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
		takes += float64(float64(n.pool.all[p].asks) / s.Speed)
	}
	n.q.at(n.q.now+n.span(takes), n.q.reserve(), event{kind: served, who: at, what: p, turn: s.turn})
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
	q := n.pool.all[p]
	if q.carries == request {
		n.conns[q.flow].answered = q.number
	}
	for i := range q.replies {
		n.reply(at, p, &q, i, n.config.PacketBytes)
	}
	if q.replies == 0 {
		n.pool.consume(p)
	}
}

// reply sends one of the replies to a request, the first in the request's own
// place.
func (n *Net[T]) reply(at Node, p int32, q *packet[T], i int32, bytes int) {
	if i > 0 {
		p = n.pool.take()
		n.pool.made++
	}
	to := q.via
	if to == none {
		to = q.client
	}
	n.pool.all[p] = packet[T]{born: q.born, client: q.client, to: to, flow: q.flow, number: q.number, index: q.index + i,
		size: int32(bytes), via: none, vip: none, carries: q.carries, reply: true, held: 1}
	n.nodes[at].Sent++
	n.forward(at, p)
}
