package proxy

import (
	"cmp"
	"slices"
)

// extent is a contiguous run of positions.
type extent struct{ first, n uint32 }

func (e extent) end() uint32 { return e.first + e.n }

// space allocates runs of positions, in constant time while there is plenty. Released
// runs rest until wake, because a program may still be reading them.
type space struct {
	size uint32
	// tail is the largest run that was free when settle was last called.
	tail    extent
	free    map[uint32][]uint32 // start positions, by the number of free positions there
	resting []extent
}

// newSpace makes a space with these positions taken. They are sorted and do not overlap.
func newSpace(size uint32, taken []extent) space {
	s := space{size: size}
	var gaps []extent
	at := uint32(0)
	for _, e := range append(taken, extent{size, 0}) {
		if e.first > at {
			gaps = append(gaps, extent{at, e.first - at})
		}
		at = e.end()
	}
	s.settle(gaps)
	return s
}

// settle sets all free runs, sorted and none adjacent.
func (s *space) settle(gaps []extent) {
	s.free, s.tail = map[uint32][]uint32{}, extent{}
	for _, e := range gaps {
		if e.n > s.tail.n {
			e, s.tail = s.tail, e
		}
		s.add(e)
	}
}

func (s *space) add(e extent) {
	if e.n > 0 {
		s.free[e.n] = append(s.free[e.n], e.first)
	}
}

// take returns the first of n contiguous positions.
func (s *space) take(n uint32) (first uint32, ok bool) {
	if first, ok = s.pop(n); ok {
		return first, true
	}
	if s.tail.n >= n {
		first = s.tail.first
		s.tail = extent{first + n, s.tail.n - n}
		return first, true
	}
	larger := ^uint32(0)
	for size := range s.free {
		if size > n {
			larger = min(larger, size)
		}
	}
	if first, ok = s.pop(larger); ok {
		s.add(extent{first + n, larger - n})
	}
	return first, ok
}

func (s *space) pop(n uint32) (first uint32, ok bool) {
	list := s.free[n]
	if len(list) == 0 {
		return 0, false
	}
	first = list[len(list)-1]
	if s.free[n] = list[:len(list)-1]; len(list) == 1 {
		delete(s.free, n)
	}
	return first, true
}

// used returns how many positions are taken or resting.
func (s *space) used() int {
	used := s.size - s.tail.n
	for n, list := range s.free {
		used -= n * uint32(len(list))
	}
	return int(used)
}

func (s *space) giveBack(e extent) { s.resting = append(s.resting, e) }

// wake makes resting runs available again, and merges adjacent ones.
func (s *space) wake() {
	all := append(s.resting, s.tail)
	for n, list := range s.free {
		for _, first := range list {
			all = append(all, extent{first, n})
		}
	}
	s.resting = nil
	slices.SortFunc(all, func(a, b extent) int { return cmp.Compare(a.first, b.first) })
	gaps := all[:0]
	for _, e := range all {
		switch last := len(gaps) - 1; {
		case e.n == 0:
		case last >= 0 && gaps[last].end() == e.first:
			gaps[last].n += e.n
		default:
			gaps = append(gaps, e)
		}
	}
	s.settle(gaps)
}
