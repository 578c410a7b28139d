package xdp

import (
	"slices"
)

// extent is a contiguous run of positions.
type extent struct{ first, n uint32 }

func (e extent) end() uint32 { return e.first + e.n }

// extents allocates runs of positions, first fit. Released runs rest until wake, because
// a packet may still be reading them.
type extents struct {
	free    []extent // sorted; no two are adjacent
	resting []extent
}

// add makes positions free.
func (x *extents) add(e extent) {
	if e.n == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(x.free, e.first, func(f extent, first uint32) int {
		return int(int64(f.first) - int64(first))
	})
	x.free = slices.Insert(x.free, at, e)
	if at+1 < len(x.free) && x.free[at].end() == x.free[at+1].first {
		x.free[at].n += x.free[at+1].n
		x.free = slices.Delete(x.free, at+1, at+2)
	}
	if at > 0 && x.free[at-1].end() == x.free[at].first {
		x.free[at-1].n += x.free[at].n
		x.free = slices.Delete(x.free, at, at+1)
	}
}

// take returns the first n contiguous free positions.
func (x *extents) take(n uint32) (extent, bool) {
	for i := range x.free {
		if f := &x.free[i]; f.n >= n {
			e := extent{f.first, n}
			f.first, f.n = f.first+n, f.n-n
			if f.n == 0 {
				x.free = slices.Delete(x.free, i, i+1)
			}
			return e, true
		}
	}
	return extent{}, false
}

// mark takes exactly these positions, and reports whether all of them were free.
func (x *extents) mark(e extent) bool {
	if e.n == 0 {
		return true
	}
	for i, f := range x.free {
		if f.first > e.first || f.end() < e.end() {
			continue
		}
		x.free = slices.Delete(x.free, i, i+1)
		x.add(extent{f.first, e.first - f.first})
		x.add(extent{e.end(), f.end() - e.end()})
		return true
	}
	return false
}

func (x *extents) giveBack(e extent) {
	if e.n > 0 {
		x.resting = append(x.resting, e)
	}
}

// wake makes resting runs available again.
func (x *extents) wake() {
	for _, e := range x.resting {
		x.add(e)
	}
	x.resting = nil
}
