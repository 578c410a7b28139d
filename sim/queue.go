package sim

// Time is a moment or a span of simulated time: seconds as floating point (the
// clock of ns-2, whose rounding decides ties), or whole nanoseconds.
type Time interface{ ~float64 | ~int64 }

// event is what happens at a moment. What who, what and turn mean depends on
// the kind.
type event struct {
	kind      kind
	who, what int32
	turn      uint32
}

// place is when an event happens: events of one moment in the order in which they
// were asked for.
type place[T Time] struct {
	at  T
	seq uint64
}

func (p place[T]) before(o place[T]) bool { return p.at < o.at || p.at == o.at && p.seq < o.seq }

// entry is an event with its place.
type entry[T Time] struct {
	place[T]
	event
}

// head is the place of the first event of a lane; or of a loose one, where lane is
// the complement of its number.
type head[T Time] struct {
	place[T]
	lane int32
}

// lane holds events that are all asked for with one delay, and so come due in
// the order in which they were asked for.
type lane[T Time] struct {
	delay      T
	ring       []entry[T] // a power of two long
	head, tail int        // ever rising
}

// queue is the events to come. Nearly all delays of a network are one of a few
// constants, so it is a few FIFOs with a small heap over their first events, and
// over those few events that are of no lane.
type queue[T Time] struct {
	now   T
	turn  uint64 // the seq of the event that happens now
	seq   uint64
	lanes []lane[T]
	heap  []head[T]
	loose []event
	free  []int32 // of loose
}

// lane gives the lane for a delay.
func (q *queue[T]) lane(delay T) int32 {
	for i := range q.lanes {
		if q.lanes[i].delay == delay {
			return int32(i)
		}
	}
	q.lanes = append(q.lanes, lane[T]{delay: delay, ring: make([]entry[T], 16)})
	return int32(len(q.lanes) - 1)
}

// after asks for an event after the delay of a lane.
func (q *queue[T]) after(l int32, e event) {
	in := &q.lanes[l]
	q.seq++
	at := place[T]{q.now + in.delay, q.seq}
	if in.head == in.tail {
		q.push(head[T]{at, l})
	} else if in.tail-in.head == len(in.ring) {
		in.grow()
	}
	in.ring[in.tail&(len(in.ring)-1)] = entry[T]{at, e}
	in.tail++
}

func (l *lane[T]) grow() {
	all := make([]entry[T], 2*len(l.ring))
	for i := l.head; i < l.tail; i++ {
		all[i&(len(all)-1)] = l.ring[i&(len(l.ring)-1)]
	}
	l.ring = all
}

// reserve takes a place among the events of a moment, for an event that may be
// asked for later, by at.
func (q *queue[T]) reserve() uint64 {
	q.seq++
	return q.seq
}

// at asks for an event at any moment that is not past.
func (q *queue[T]) at(t T, seq uint64, e event) {
	slot := int32(len(q.loose))
	if last := len(q.free) - 1; last >= 0 {
		slot, q.free = q.free[last], q.free[:last]
		q.loose[slot] = e
	} else {
		q.loose = append(q.loose, e)
	}
	q.push(head[T]{place[T]{t, seq}, ^slot})
}

func (q *queue[T]) push(n head[T]) {
	q.heap = append(q.heap, n)
	h := q.heap
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !n.before(h[up].place) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = n
}

// next takes the first event, and sets the clock to its moment; false where
// none is before end.
func (q *queue[T]) next(end T) (event, bool) {
	if len(q.heap) == 0 || q.heap[0].at >= end {
		return event{}, false
	}
	first := q.heap[0]
	q.now, q.turn = first.at, first.seq
	var e event
	if first.lane >= 0 {
		l := &q.lanes[first.lane]
		e = l.ring[l.head&(len(l.ring)-1)].event
		l.head++
		if l.head != l.tail {
			q.sink(head[T]{l.ring[l.head&(len(l.ring)-1)].place, first.lane})
			return e, true
		}
	} else {
		e = q.loose[^first.lane]
		q.free = append(q.free, ^first.lane)
	}
	last := len(q.heap) - 1
	n := q.heap[last]
	q.heap = q.heap[:last]
	if last > 0 {
		q.sink(n)
	}
	return e, true
}

// sink puts a head in the place of the first, and down to where it belongs.
func (q *queue[T]) sink(n head[T]) {
	h := q.heap
	i := 0
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if r := down + 1; r < len(h) && h[r].before(h[down].place) {
			down = r
		}
		if !h[down].before(n.place) {
			break
		}
		h[i] = h[down]
		i = down
	}
	h[i] = n
}
