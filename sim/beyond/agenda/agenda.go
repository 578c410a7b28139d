// Package agenda is what will happen, in order: events of the experiments that
// are not about packets, at whole nanoseconds.
package agenda

// Agenda gives events in the order of their moments, those of one moment in the
// order in which they were asked for. Its zero value is empty, at moment 0.
type Agenda[E any] struct {
	now  int64
	seq  uint64
	heap []entry[E]
}

type entry[E any] struct {
	at  int64
	seq uint64
	e   E
}

func (a *entry[E]) before(b *entry[E]) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// Now is the moment of the event given last, in nanoseconds.
func (a *Agenda[E]) Now() int64 { return a.now }

// Len is how many events are to come.
func (a *Agenda[E]) Len() int { return len(a.heap) }

// At asks for an event at a moment, and now for one that would have been past.
func (a *Agenda[E]) At(at int64, e E) {
	a.seq++
	a.heap = append(a.heap, entry[E]{max(at, a.now), a.seq, e})
	h := a.heap
	i := len(h) - 1
	n := h[i]
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

// Next gives the first event and makes its moment now; false where none is
// before end.
func (a *Agenda[E]) Next(end int64) (e E, ok bool) {
	h := a.heap
	if len(h) == 0 || h[0].at >= end {
		return e, false
	}
	first, last := h[0], len(h)-1
	n := h[last]
	h[last] = entry[E]{}
	h = h[:last]
	a.heap, a.now = h, first.at
	i := 0
	for down := 1; down < last; down = 2*i + 1 {
		if r := down + 1; r < last && h[r].before(&h[down]) {
			down = r
		}
		if !h[down].before(&n) {
			break
		}
		h[i] = h[down]
		i = down
	}
	if last > 0 {
		h[i] = n
	}
	return first.e, true
}
