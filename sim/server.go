package sim

// Server is who answers requests.
type Server struct {
	Name string
	// Cores serve one request each at a time, which takes Takes seconds; without
	// Takes answers are there at once, as in ns-2.
	Cores int
	Takes Duration
	// Queue is how many requests may wait for a core; 0: any number.
	Queue int
}

// Duration draws how long something takes, in seconds. It may use the Stream, and
// nothing else that is not its own.
type Duration func(*Stream) float64

type server[T Time] struct {
	Server
	busy    int
	waiting fifo
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
	s := n.nodes[at].server
	switch {
	case s.Takes == nil:
		n.answer(at, p)
	case s.busy < s.Cores:
		s.busy++
		n.work(at, p)
	case s.Queue > 0 && s.waiting.len() >= s.Queue:
		n.lose(queueFull, at, p)
	default:
		s.waiting.push(p)
	}
}

func (n *Net[T]) work(at Node, p int32) {
	takes := n.nodes[at].server.Takes(n.random)
	n.q.at(n.q.now+n.span(takes), n.q.reserve(), event{kind: served, who: at, what: p})
}

func (n *Net[T]) served(at Node, p int32) {
	n.answer(at, p)
	s := n.nodes[at].server
	if s.waiting.len() > 0 {
		n.work(at, s.waiting.pop())
		return
	}
	s.busy--
}

// answer turns a request into its replies.
func (n *Net[T]) answer(at Node, p int32) {
	request := n.pool.all[p]
	for i := range request.replies {
		reply := p
		if i > 0 {
			reply = n.pool.take()
			n.pool.made++
		}
		n.pool.all[reply] = packet[T]{born: request.born, client: request.client, to: request.client, number: request.number,
			size: int32(n.config.PacketBytes), reply: true, held: 1}
		n.nodes[at].Sent++
		n.forward(at, reply)
	}
	if request.replies == 0 {
		n.pool.consume(p)
	}
}
