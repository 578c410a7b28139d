package sim

// accept is a packet of a connection at a server: one that the server knows not is
// sent on to those who may, or reset.
func (n *Net[T]) accept(at Node, p int32) {
	s, q := n.nodes[at].server, &n.pool.all[p]
	switch {
	case q.carries == syn:
		s.known.add(q.flow)
		n.turn(at, p, controlBytes)
	case !s.known.has(q.flow):
		n.unknown(at, p)
	case q.carries == fin:
		s.known.remove(q.flow)
		n.turn(at, p, controlBytes)
	case q.carries == more:
		n.answer(at, p)
	default:
		n.request(at, p)
	}
}

// request is one in a connection: if it is served already, or was, it is not again.
func (n *Net[T]) request(at Node, p int32) {
	number := n.pool.extra(p).number
	c := &n.conns[n.pool.all[p].flow]
	switch {
	case c.server != at || c.begun < number:
		c.server, c.begun = at, number
		n.take(at, p)
	case c.answered >= number:
		n.answer(at, p)
	default:
		n.pool.consume(p)
	}
}

// refuse drops a request that finds the queue full, as if it had not come.
func (n *Net[T]) refuse(at Node, p int32) {
	if q := &n.pool.all[p]; q.carries == request {
		n.conns[q.flow].begun = n.pool.extra(p).number - 1
	}
	n.lose(queueFull, at, p)
}

// unknown sends a packet on to the next server of its chain, or resets its
// connection.
func (n *Net[T]) unknown(at Node, p int32) {
	q := &n.pool.all[p]
	e := n.pool.extra(p)
	if e.chained == 0 {
		q.carries = reset
		n.turn(at, p, controlBytes)
		return
	}
	q.to = e.pop()
	n.forward(at, p)
}

// pop takes the next server to ask.
func (e *extra) pop() Node {
	first := e.chain[0]
	copy(e.chain[:], e.chain[1:])
	e.chained--
	return first
}
