package eventqueue

// Time is a point in time or a duration in simulated time: seconds as floating point (the
// clock of ns-2, whose rounding decides ties), or integer nanoseconds.
type Time interface{ ~float64 | ~int64 }

// head is the position of the first event of a lane.
type head[T Time] struct {
	at   T
	seq  uint64
	lane int32
}

// lane contains events that are scheduled with the same delay, and therefore become due
// in the order in which they were scheduled.
type lane[T Time, E any] struct {
	delay      T
	ring       []Entry[T, E] // its length is a power of two
	head, tail int           // ever increasing
}

// lanesMost is the maximum number of delays with lanes. More distinct delays are hardly
// constants.
const lanesMost = 32

// Queue contains the pending events. Nearly all delays in a network are one of a few
// constants, so it consists of a few FIFOs with sorted heads, and a heap for the events
// without a lane.
type Queue[T Time, E any] struct {
	Now   T
	Turn  uint64 // the seq of the current event
	seq   uint64
	lanes []lane[T, E]
	heads []head[T] // of lanes that are not empty, the first one last
	loose Heap[T, E]
}

// Lane returns the lane for a delay.
func (q *Queue[T, E]) Lane(delay T) int32 {
	for i := range q.lanes {
		if q.lanes[i].delay == delay {
			return int32(i)
		}
	}
	l := lane[T, E]{delay: delay}
	if len(q.lanes) < lanesMost {
		l.ring = make([]Entry[T, E], 16)
	}
	q.lanes = append(q.lanes, l)
	return int32(len(q.lanes) - 1)
}

// After schedules an event after the delay of a lane.
func (q *Queue[T, E]) After(l int32, e E) {
	in := &q.lanes[l]
	q.seq++
	at := q.Now + in.delay
	if in.tail-in.head == len(in.ring) {
		if len(in.ring) == 0 {
			q.At(at, q.seq, e)
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

// Delay returns the delay of a lane.
func (q *Queue[T, E]) Delay(lane int32) T { return q.lanes[lane].delay }

func (l *lane[T, E]) grow() {
	all := make([]Entry[T, E], 2*len(l.ring))
	for i := l.head; i < l.tail; i++ {
		all[i&(len(all)-1)] = l.ring[i&(len(l.ring)-1)]
	}
	l.ring = all
}

// insert moves a new head to its position, starting from the end.
func (q *Queue[T, E]) insert(n head[T]) {
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

// Reserve reserves a sequence number for an event that may be scheduled later with At.
func (q *Queue[T, E]) Reserve() uint64 {
	q.seq++
	return q.seq
}

// At schedules an event at any time that is not in the past.
func (q *Queue[T, E]) At(t T, seq uint64, e E) {
	q.loose.Push(Entry[T, E]{At: t, Seq: seq, E: e})
}

// Next removes the first event and sets the clock to its time. It returns false if there
// is no event before end.
func (q *Queue[T, E]) Next(end T) (e E, ok bool) {
	last := len(q.heads) - 1
	loose := q.loose.First()
	if last < 0 || loose != nil && (loose.At < q.heads[last].at || loose.At == q.heads[last].at && loose.Seq < q.heads[last].seq) {
		return q.nextLoose(loose, end)
	}
	first := &q.heads[last]
	if first.at >= end {
		return e, false
	}
	q.Now, q.Turn = first.at, first.seq
	l := &q.lanes[first.lane]
	mask := len(l.ring) - 1
	e = l.ring[l.head&mask].E
	l.head++
	if l.head == l.tail {
		q.heads = q.heads[:last]
		return e, true
	}
	n := &l.ring[l.head&mask]
	q.insert(head[T]{n.At, n.Seq, first.lane})
	return e, true
}

// nextLoose handles a first event without a lane.
func (q *Queue[T, E]) nextLoose(first *Entry[T, E], end T) (e E, ok bool) {
	if first == nil || first.At >= end {
		return e, false
	}
	e = first.E
	q.Now, q.Turn = first.At, first.Seq
	q.loose.Drop()
	return e, true
}

// Clear removes all events.
func (q *Queue[T, E]) Clear() {
	q.heads = q.heads[:0]
	q.loose.Clear()
}
