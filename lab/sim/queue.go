package sim

import "github.com/fairlead/fairlead/lab/sim/agenda"

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

// head is the place of the first event of a lane.
type head[T Time] struct {
	at   T
	seq  uint64
	lane int32
}

// lane holds events that are all asked for with one delay, and so come due in
// the order in which they were asked for.
type lane[T Time] struct {
	delay      T
	ring       []agenda.Entry[T, event] // a power of two long
	head, tail int                      // ever rising
}

// lanesMost is how many delays have lanes. Who uses more has no few constants.
const lanesMost = 32

// queue is the events to come. Nearly all delays of a network are one of a few
// constants, so it is a few FIFOs, whose heads are sorted, and a heap for what is of
// no lane.
type queue[T Time] struct {
	now   T
	turn  uint64 // the seq of the event that happens now
	seq   uint64
	lanes []lane[T]
	heads []head[T] // of lanes that are not empty, the first one last
	loose agenda.Heap[T, event]
}

// lane gives the lane for a delay.
func (q *queue[T]) lane(delay T) int32 {
	for i := range q.lanes {
		if q.lanes[i].delay == delay {
			return int32(i)
		}
	}
	l := lane[T]{delay: delay}
	if len(q.lanes) < lanesMost {
		l.ring = make([]agenda.Entry[T, event], 16)
	}
	q.lanes = append(q.lanes, l)
	return int32(len(q.lanes) - 1)
}

// after asks for an event after the delay of a lane.
func (q *queue[T]) after(l int32, e event) {
	in := &q.lanes[l]
	q.seq++
	at := q.now + in.delay
	if in.tail-in.head == len(in.ring) {
		if len(in.ring) == 0 {
			q.at(at, q.seq, e)
			return
		}
		in.grow()
	}
	slot := &in.ring[in.tail&(len(in.ring)-1)]
	slot.At, slot.Seq, slot.E = at, q.seq, e
	if in.head == in.tail {
		q.heads = append(q.heads, head[T]{})
		q.insert(head[T]{at, q.seq, l})
	}
	in.tail++
}

func (l *lane[T]) grow() {
	all := make([]agenda.Entry[T, event], 2*len(l.ring))
	for i := l.head; i < l.tail; i++ {
		all[i&(len(all)-1)] = l.ring[i&(len(l.ring)-1)]
	}
	l.ring = all
}

// insert puts a head where it belongs, in place of the last.
func (q *queue[T]) insert(n head[T]) {
	h := q.heads
	i := len(h) - 1
	for ; i > 0; i-- {
		if o := &h[i-1]; n.at < o.at || n.at == o.at && n.seq < o.seq {
			break
		}
		h[i] = h[i-1]
	}
	h[i] = n
}

// reserve takes a place among the events of a moment, for an event that may be
// asked for later, by at.
func (q *queue[T]) reserve() uint64 {
	q.seq++
	return q.seq
}

// at asks for an event at any moment that is not past.
func (q *queue[T]) at(t T, seq uint64, e event) {
	q.loose.Push(agenda.Entry[T, event]{At: t, Seq: seq, E: e})
}

// next takes the first event, and sets the clock to its moment; false where
// none is before end.
func (q *queue[T]) next(end T) (event, bool) {
	last := len(q.heads) - 1
	loose := q.loose.First()
	if last < 0 || loose != nil && (loose.At < q.heads[last].at || loose.At == q.heads[last].at && loose.Seq < q.heads[last].seq) {
		return q.nextLoose(loose, end)
	}
	first := &q.heads[last]
	if first.at >= end {
		return event{}, false
	}
	q.now, q.turn = first.at, first.seq
	l := &q.lanes[first.lane]
	mask := len(l.ring) - 1
	e := l.ring[l.head&mask].E
	l.head++
	if l.head == l.tail {
		q.heads = q.heads[:last]
		return e, true
	}
	n := &l.ring[l.head&mask]
	q.insert(head[T]{n.At, n.Seq, first.lane})
	return e, true
}

// nextLoose is for a first event that is of no lane.
func (q *queue[T]) nextLoose(first *agenda.Entry[T, event], end T) (event, bool) {
	if first == nil || first.At >= end {
		return event{}, false
	}
	e := first.E
	q.now, q.turn = first.At, first.Seq
	q.loose.Drop()
	return e, true
}

// clear takes all away.
func (q *queue[T]) clear() {
	q.heads = q.heads[:0]
	q.loose.Clear()
}
