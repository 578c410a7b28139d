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

// entry is an event with its place in time. Events of one moment happen in the
// order in which they were asked for.
type entry[T Time] struct {
	at   T
	seq  uint64
	lane int32 // the lane it is the first of, or loose
	event
}

// loose marks entries of no lane.
const loose = -1

func (e *entry[T]) before(o *entry[T]) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// lane holds events that are all asked for with one delay, and so come due in
// the order in which they were asked for: the first one alone is in the heap.
type lane[T Time] struct {
	delay      T
	ring       []entry[T] // a power of two long
	head, tail int        // of those that are not in the heap; ever rising
	waiting    bool       // one is in the heap
}

// queue is the events to come. Nearly all delays of a network are one of a few
// constants, so it is a few FIFOs with a small heap over their first events.
type queue[T Time] struct {
	now   T
	seq   uint64
	lanes []lane[T]
	heap  []entry[T]
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
	n := entry[T]{at: q.now + in.delay, seq: q.seq, lane: l, event: e}
	if !in.waiting {
		in.waiting = true
		q.push(n)
		return
	}
	if in.tail-in.head == len(in.ring) {
		in.grow()
	}
	in.ring[in.tail&(len(in.ring)-1)] = n
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
	q.push(entry[T]{at: t, seq: seq, lane: loose, event: e})
}

func (q *queue[T]) push(n entry[T]) {
	q.heap = append(q.heap, n)
	h := q.heap
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !n.before(&h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = n
}

// next takes the first event, and sets the clock to its moment; false where
// none is before end.
func (q *queue[T]) next(end T) (entry[T], bool) {
	if len(q.heap) == 0 || q.heap[0].at >= end {
		return entry[T]{}, false
	}
	first := q.heap[0]
	q.now = first.at
	if first.lane != loose {
		l := &q.lanes[first.lane]
		if l.head != l.tail {
			q.sink(l.ring[l.head&(len(l.ring)-1)])
			l.head++
			return first, true
		}
		l.waiting = false
	}
	last := len(q.heap) - 1
	n := q.heap[last]
	q.heap = q.heap[:last]
	if last > 0 {
		q.sink(n)
	}
	return first, true
}

// sink puts an entry in the place of the first, and down to where it belongs.
func (q *queue[T]) sink(n entry[T]) {
	h := q.heap
	i := 0
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if r := down + 1; r < len(h) && h[r].before(&h[down]) {
			down = r
		}
		if !h[down].before(&n) {
			break
		}
		h[i] = h[down]
		i = down
	}
	h[i] = n
}
