package eventqueue

// Entry is an event with its position. Entries with the same time are ordered by Seq.
type Entry[T ~float64 | ~int64, E any] struct {
	At  T
	Seq uint64
	E   E
}

func (a *Entry[T, E]) before(b *Entry[T, E]) bool {
	return a.At < b.At || a.At == b.At && a.Seq < b.Seq
}

// Heap is a binary heap of entries. Its zero value is empty.
type Heap[T ~float64 | ~int64, E any] struct {
	all  []Entry[T, E]
	hole bool // the first entry was dropped and not replaced yet
}

// Len returns the number of entries.
func (h *Heap[T, E]) Len() int {
	if h.hole {
		return len(h.all) - 1
	}
	return len(h.all)
}

// First returns the first entry, which is valid until the heap changes, or nil if the
// heap is empty.
func (h *Heap[T, E]) First() *Entry[T, E] {
	if h.hole {
		h.fill()
	}
	if len(h.all) == 0 {
		return nil
	}
	return &h.all[0]
}

// Drop removes the entry that First returned. Its place stays empty until the next
// operation, because the next Push can usually reuse it.
func (h *Heap[T, E]) Drop() { h.hole = true }

// fill moves the last entry to the place of the first.
func (h *Heap[T, E]) fill() {
	h.hole = false
	last := len(h.all) - 1
	n := h.all[last]
	h.all[last] = Entry[T, E]{}
	h.all = h.all[:last]
	if last > 0 {
		h.Replace(n)
	}
}

// Push adds an entry.
func (h *Heap[T, E]) Push(n Entry[T, E]) {
	if h.hole {
		h.hole = false
		h.Replace(n)
		return
	}
	h.all = append(h.all, n)
	all := h.all
	i := len(all) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !n.before(&all[up]) {
			break
		}
		all[i] = all[up]
		i = up
	}
	all[i] = n
}

// Replace replaces the first entry and moves the new one down to its position.
func (h *Heap[T, E]) Replace(n Entry[T, E]) {
	all := h.all
	i := 0
	for {
		down := 2*i + 1
		if down >= len(all) {
			break
		}
		if r := down + 1; r < len(all) && all[r].before(&all[down]) {
			down = r
		}
		if !all[down].before(&n) {
			break
		}
		all[i] = all[down]
		i = down
	}
	all[i] = n
}

// Clear removes all entries.
func (h *Heap[T, E]) Clear() { *h = Heap[T, E]{} }
