// Package agenda is what will happen, in order: the heap under the simulator's
// queue, and an agenda over it for experiments that are not about packets.
package agenda

// Agenda gives events in the order of their moments, at whole nanoseconds, those of
// one moment in the order in which they were asked for. Its zero value is empty, at
// moment 0.
type Agenda[E any] struct {
	now  int64
	seq  uint64
	heap Heap[int64, E]
}

// Now is the moment of the event given last, in nanoseconds.
func (a *Agenda[E]) Now() int64 { return a.now }

// Len is how many events are to come.
func (a *Agenda[E]) Len() int { return a.heap.Len() }

// At asks for an event at a moment, and now for one that would have been past.
func (a *Agenda[E]) At(at int64, e E) {
	a.seq++
	a.heap.Push(Entry[int64, E]{max(at, a.now), a.seq, e})
}

// Next gives the first event and makes its moment now; false where none is
// before end.
func (a *Agenda[E]) Next(end int64) (e E, ok bool) {
	first := a.heap.First()
	if first == nil || first.At >= end {
		return e, false
	}
	e, a.now = first.E, first.At
	a.heap.Drop()
	return e, true
}
