package alloc

import (
	"slices"
)

// Extent is a contiguous run of positions.
type Extent struct{ First, N uint32 }

// End is the position after the last.
func (e Extent) End() uint32 { return e.First + e.N }

// Extents allocates runs of positions, first fit. Released runs rest until Wake, because
// a packet may still be reading them.
type Extents struct {
	size    uint32
	free    []Extent // sorted; no two are adjacent
	resting []Extent
}

// NewExtents returns that many positions, all of them free.
func NewExtents(size uint32) Extents { return Extents{size: size, free: []Extent{{0, size}}} }

// Taken is the number of positions that are neither free nor resting.
func (x *Extents) Taken() uint32 {
	taken := x.size
	for _, e := range slices.Concat(x.free, x.resting) {
		taken -= e.N
	}
	return taken
}

// Resting reports whether some rest.
func (x *Extents) Resting() bool { return len(x.resting) > 0 }

// add makes positions free.
func (x *Extents) add(e Extent) {
	if e.N == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(x.free, e.First, func(f Extent, first uint32) int {
		return int(int64(f.First) - int64(first))
	})
	x.free = slices.Insert(x.free, at, e)
	if at+1 < len(x.free) && x.free[at].End() == x.free[at+1].First {
		x.free[at].N += x.free[at+1].N
		x.free = slices.Delete(x.free, at+1, at+2)
	}
	if at > 0 && x.free[at-1].End() == x.free[at].First {
		x.free[at-1].N += x.free[at].N
		x.free = slices.Delete(x.free, at, at+1)
	}
}

// Take returns the first n contiguous free positions.
func (x *Extents) Take(n uint32) (Extent, bool) {
	for i := range x.free {
		if f := &x.free[i]; f.N >= n {
			e := Extent{f.First, n}
			f.First, f.N = f.First+n, f.N-n
			if f.N == 0 {
				x.free = slices.Delete(x.free, i, i+1)
			}
			return e, true
		}
	}
	return Extent{}, false
}

// Mark takes exactly these positions, and reports whether all of them were free.
func (x *Extents) Mark(e Extent) bool {
	if e.N == 0 {
		return true
	}
	for i, f := range x.free {
		if f.First > e.First || f.End() < e.End() {
			continue
		}
		x.free = slices.Delete(x.free, i, i+1)
		x.add(Extent{f.First, e.First - f.First})
		x.add(Extent{e.End(), f.End() - e.End()})
		return true
	}
	return false
}

// GiveBack lets a run rest.
func (x *Extents) GiveBack(e Extent) {
	if e.N > 0 {
		x.resting = append(x.resting, e)
	}
}

// Wake makes resting runs available again.
func (x *Extents) Wake() {
	for _, e := range x.resting {
		x.add(e)
	}
	x.resting = nil
}
