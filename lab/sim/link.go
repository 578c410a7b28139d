package sim

// link is one direction of a line between two nodes, with a drop-tail queue in
// front: a packet takes its bits' time at the line's rate, and the line's delay.
type link[T Time] struct {
	line     int32
	from, to Node
	limit    int // of the queue: limit-1 packets wait; of a line that is cut 0
	queue    fifo
	asked    bool // there is an event for when the line is free
	cut      bool
	uncut    int // the limit that it had
	// free is when what is being sent has been sent; ticket is the place of that
	// moment's event, which is asked for only where a packet waits for it.
	free   T
	ticket uint64
}

// line is what lines of one kind have in common.
type line[T Time] struct {
	rate  float64
	delay T
	ether bool // packets are in frames
	sizes []passage[T]
}

// passage is how long a packet of a size takes.
type passage[T Time] struct {
	bytes int32
	takes T     // to be sent
	lane  int32 // of its arrival
}

func (n *Net[T]) line(rate, delay float64, ether bool) int32 {
	d := n.span(delay)
	for i := range n.lines {
		if n.lines[i].rate == rate && n.lines[i].delay == d && n.lines[i].ether == ether {
			return int32(i)
		}
	}
	n.lines = append(n.lines, line[T]{rate: rate, delay: d, ether: ether})
	return int32(len(n.lines) - 1)
}

func (n *Net[T]) passage(id, bytes int32) passage[T] {
	l := &n.lines[id]
	for _, p := range l.sizes {
		if p.bytes == bytes {
			return p
		}
	}
	all, most := l.onWire(int(bytes))
	l.sizes = append(l.sizes, passage[T]{bytes, n.bits(8*all, l.rate), n.q.lane(n.bits(8*most, l.rate) + l.delay)})
	return l.sizes[len(l.sizes)-1]
}

// send puts a packet on a link, or into its queue.
func (n *Net[T]) send(id, p int32) {
	l := &n.links[id]
	if n.q.now > l.free || n.q.now == l.free && n.q.turn >= l.ticket {
		n.serialise(id, p)
		return
	}
	if l.queue.len()+1 >= l.limit {
		why := queueFull
		if l.cut {
			why = cut
		}
		n.lose(why, l.from, p)
		return
	}
	l.queue.push(p)
	if !l.asked {
		l.asked = true
		n.q.at(l.free, l.ticket, event{kind: lineFree, who: id})
	}
}

func (n *Net[T]) serialise(id, p int32) {
	l := &n.links[id]
	its := n.passage(l.line, n.pool.all[p].size)
	n.q.after(its.lane, event{kind: arrival, who: l.to, what: p})
	l.free, l.ticket = n.q.now+its.takes, n.q.reserve()
}

// lineFree sends what waits first.
func (n *Net[T]) lineFree(id int32) {
	l := &n.links[id]
	switch {
	case l.queue.len() == 0: // flushed
		l.asked = false
		return
	case n.q.now < l.free: // cut and mended meanwhile
		n.q.at(l.free, l.ticket, event{kind: lineFree, who: id})
		return
	}
	n.serialise(id, l.queue.pop())
	if l.asked = l.queue.len() > 0; l.asked {
		n.q.at(l.free, l.ticket, event{kind: lineFree, who: id})
	}
}
