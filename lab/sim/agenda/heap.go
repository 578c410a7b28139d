package agenda

// Entry is an event with its place: those of one moment come by their numbers.
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
	hole bool // the first has been taken, and nobody was put in its place
}

// Len is how many entries there are.
func (h *Heap[T, E]) Len() int {
	if h.hole {
		return len(h.all) - 1
	}
	return len(h.all)
}

// First gives the first entry, until the heap changes; nil where there is none.
func (h *Heap[T, E]) First() *Entry[T, E] {
	if h.hole {
		h.fill()
	}
	if len(h.all) == 0 {
		return nil
	}
	return &h.all[0]
}

// Drop takes the entry away that First gave. Its place stays empty for a while:
// what is pushed next mostly goes there.
func (h *Heap[T, E]) Drop() { h.hole = true }

// fill puts the last entry where the first was.
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

// Replace puts an entry in the place of the first, and down to where it belongs.
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

// Clear takes all away.
func (h *Heap[T, E]) Clear() { *h = Heap[T, E]{} }
