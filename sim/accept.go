package sim

// accept is a packet of a connection at a server: one that the server knows not is
// sent on to those who may, or reset.
func (n *Net[T]) accept(at Node, p int32) {
	s, q := n.nodes[at].server, &n.pool.all[p]
	switch {
	case q.carries == syn:
		s.known.add(q.flow)
		n.control(at, p)
	case !s.known.has(q.flow):
		n.unknown(at, p)
	case q.carries == fin:
		s.known.remove(q.flow)
		n.control(at, p)
	case q.carries == more:
		n.answer(at, p)
	default:
		n.request(at, p)
	}
}

// request is one in a connection: if it is served already, or was, it is not again.
func (n *Net[T]) request(at Node, p int32) {
	q := &n.pool.all[p]
	c := &n.conns[q.flow]
	switch {
	case c.server != at || c.begun < q.number:
		c.server, c.begun = at, q.number
		n.take(at, p)
	case c.answered >= q.number:
		n.answer(at, p)
	default:
		n.pool.consume(p)
	}
}

// refuse drops a request that finds the queue full, as if it had not come.
func (n *Net[T]) refuse(at Node, p int32) {
	if q := &n.pool.all[p]; q.carries == request {
		n.conns[q.flow].begun = q.number - 1
	}
	n.lose(queueFull, at, p)
}

// control answers a packet without data.
func (n *Net[T]) control(at Node, p int32) {
	q := n.pool.all[p]
	n.reply(at, p, &q, 0, controlBytes)
}

// unknown sends a packet on to the next server of its chain, or resets its
// connection.
func (n *Net[T]) unknown(at Node, p int32) {
	q := &n.pool.all[p]
	if q.chained == 0 {
		q.carries = reset
		n.control(at, p)
		return
	}
	chain := &n.pool.chains[p]
	q.to = chain[0]
	copy(chain[:], chain[1:])
	q.chained--
	n.forward(at, p)
}
