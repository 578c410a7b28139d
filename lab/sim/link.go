package sim

// link is one direction of a line between two nodes, with a drop-tail queue. A packet
// takes its transmission time at the line's rate, plus the line's delay.
type link[T Time] struct {
	line     int32
	from, to Node
	limit    int // of the queue: limit-1 packets may wait; 0 if the line is cut
	queue    fifo
	asked    bool // an event for when the line is free is scheduled
	cut      bool
	uncut    int // the limit before the cut
	// free is the end of the current transmission. ticket is the sequence number of that
	// time's event, which is only scheduled if a packet is waiting.
	free   T
	ticket uint64
}

// line contains what all lines of the same kind share.
type line[T Time] struct {
	rate  float64
	delay T
	ether bool // packets are sent in Ethernet frames
	sizes []passage[T]
}

// passage contains the times for packets of one size.
type passage[T Time] struct {
	bytes int32
	takes T     // transmission time
	lane  int32 // of the arrival
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
	l.sizes = append(l.sizes, passage[T]{bytes, n.bits(8*all, l.rate), n.q.Lane(n.bits(8*most, l.rate) + l.delay)})
	return l.sizes[len(l.sizes)-1]
}

// send sends a packet on a link, or queues it.
func (n *Net[T]) send(id, p int32) {
	l := &n.links[id]
	if n.q.Now > l.free || n.q.Now == l.free && n.q.Turn >= l.ticket {
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
		n.q.At(l.free, l.ticket, event{kind: lineFree, who: id})
	}
}

func (n *Net[T]) serialise(id, p int32) {
	l := &n.links[id]
	its := n.passage(l.line, n.pool.all[p].size)
	n.q.After(its.lane, event{kind: arrival, who: l.to, what: p})
	l.free, l.ticket = n.q.Now+its.takes, n.q.Reserve()
}

// lineFree sends the first packet of the queue.
func (n *Net[T]) lineFree(id int32) {
	l := &n.links[id]
	switch {
	case l.queue.len() == 0: // flushed
		l.asked = false
		return
	case n.q.Now < l.free: // cut and restored meanwhile
		n.q.At(l.free, l.ticket, event{kind: lineFree, who: id})
		return
	}
	n.serialise(id, l.queue.pop())
	if l.asked = l.queue.len() > 0; l.asked {
		n.q.At(l.free, l.ticket, event{kind: lineFree, who: id})
	}
}
