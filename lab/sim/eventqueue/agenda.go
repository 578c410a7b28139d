// Package eventqueue contains the event queues of the simulator: the packet simulator's
// queue with its heap, and an event queue for experiments that do not simulate packets.
//
// What does not belong here: what an event means (sim).
package eventqueue

// Agenda is an event queue with times in whole nanoseconds. Events with the same time
// come in the order in which they were added. The zero value is an empty queue at time 0.
type Agenda[E any] struct {
	now  int64
	seq  uint64
	heap Heap[int64, E]
}

// Now returns the time of the last event returned, in nanoseconds.
func (a *Agenda[E]) Now() int64 { return a.now }

// Len returns the number of pending events.
func (a *Agenda[E]) Len() int { return a.heap.Len() }

// At adds an event. A time in the past becomes the current time.
func (a *Agenda[E]) At(at int64, e E) {
	a.seq++
	a.heap.Push(Entry[int64, E]{max(at, a.now), a.seq, e})
}

// Next returns the first event and advances the time to it. It returns false if there is
// no event before end.
func (a *Agenda[E]) Next(end int64) (e E, ok bool) {
	first := a.heap.First()
	if first == nil || first.At >= end {
		return e, false
	}
	e, a.now = first.E, first.At
	a.heap.Drop()
	return e, true
}
