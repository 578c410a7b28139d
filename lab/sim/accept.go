package sim

// accept handles a packet of a connection at a server. A packet of an unknown connection
// is forwarded to the next server that may know it, or answered with a reset.
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

// request handles a request on a connection. A request that is already being served, or
// was served, is not served again.
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

// refuse drops a request that finds the queue full, and undoes its effect on the
// connection.
func (n *Net[T]) refuse(at Node, p int32) {
	if q := &n.pool.all[p]; q.carries == request {
		n.conns[q.flow].begun = n.pool.extra(p).number - 1
	}
	n.lose(queueFull, at, p)
}

// unknown forwards a packet to the next server of its chain, or resets its connection.
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

// pop removes and returns the next server of the chain.
func (e *extra) pop() Node {
	first := e.chain[0]
	copy(e.chain[:], e.chain[1:])
	e.chained--
	return first
}
