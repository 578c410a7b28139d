package maglev

import (
	"bytes"
	"math/bits"
)

// fill runs the walkers round robin until every slot has an owner. Each turn adds a
// walker's weight to its credit, and a slot costs the greatest weight, so the heaviest
// walker takes one slot per turn and the others a fraction of that.
//
// Nearly all the time is spent skipping taken slots: finding the last free slot of n
// takes n steps. Taken slots are therefore recorded in bytes, many of which fit in a
// cache, and when few slots are left, their position in a walk is computed instead.
func fill(ring []uint32, ws []walker) {
	var cost uint64
	for _, w := range ws {
		cost = max(cost, w.weight)
	}
	left, few := len(ring), fewLeft(len(ring))
	taken := make([]uint8, len(ring))
	for left > few {
		for i := range ws {
			w := &ws[i]
			if w.credit += w.weight; w.credit < cost {
				continue
			}
			w.credit -= cost
			ring[w.walk(taken, uint32(len(ring)))] = w.index
			if left--; left == few {
				rest(ring, ws, cost, i+1, freeSlots(taken))
				return
			}
		}
	}
}

// fewLeft returns the number of free slots below which computing the position of each is
// cheaper than walking.
func fewLeft(size int) int {
	if size > maxFraction {
		return 0
	}
	return min(size-1, 1<<((bits.Len(uint(size))+1)/2))
}

// walk takes and returns the next free slot of a walker. It tests four slots at a time,
// which the CPU executes in parallel; a branch per slot would be unpredictable.
func (w *walker) walk(taken []uint8, size uint32) uint32 {
	a := w.next
	for {
		b := after(a, w.skip, size)
		c := after(a, w.skip2, size)
		d := after(b, w.skip2, size)
		seen := uint32(taken[a]) | uint32(taken[b])<<1 | uint32(taken[c])<<2 | uint32(taken[d])<<3
		if seen != 15 {
			at := [4]uint32{a, b, c, d}[bits.TrailingZeros32(^seen)&3]
			taken[at] = 1
			w.next = after(at, w.skip, size)
			return at
		}
		a = after(a, w.skip4, size)
	}
}

// after returns the slot one stride further, without an unpredictable branch.
func after(at, skip, size uint32) uint32 {
	next := at + skip - size
	return next + size&uint32(int32(next)>>31)
}

// rest assigns the last free slots, starting with the turn of walker i.
func rest(ring []uint32, ws []walker, cost uint64, i int, free []uint32) {
	size := uint32(len(ring))
	for ; len(free) > 0; i++ {
		if i == len(ws) {
			i = 0
		}
		w := &ws[i]
		if w.credit += w.weight; w.credit < cost {
			continue
		}
		w.credit -= cost
		n := w.nearest(free, size)
		at := free[n]
		ring[at] = w.index
		w.next = after(at, w.skip, size)
		free[n] = free[len(free)-1]
		free = free[:len(free)-1]
	}
}

// maxFraction is the largest size for which 64 bits can distinguish the fractions
// computed by nearest and still hold an index.
const maxFraction = 1 << 17

// nearest returns which of the free slots a walker reaches first. It reaches slot s after
// (s-next)/skip steps, modulo the size. That number divided by the size, in units of
// 2^-64, takes one multiplication and sorts slots in the same order: the fractions are
// 2^64/size > 2^46 apart, and the rounding error is less than size^2 < 2^35. The lowest
// bits carry the index.
func (w *walker) nearest(free []uint32, size uint32) int {
	if w.unit == 0 {
		w.unit = (^uint64(0)/uint64(size) + 1) * uint64(inverse(w.skip, size))
	}
	const index = 1<<16 - 1
	least := ^uint64(0)
	start := uint64(w.next) * w.unit
	for i, s := range free {
		least = min(least, (uint64(s)*w.unit-start)&^index|uint64(i))
	}
	return int(least & index)
}

// freeSlots returns the slots that are not taken.
func freeSlots(taken []uint8) (free []uint32) {
	for from := 0; from < len(taken); {
		i := bytes.IndexByte(taken[from:], 0)
		if i < 0 {
			break
		}
		free = append(free, uint32(from+i))
		from += i + 1
	}
	return free
}

// inverse returns the modular inverse of a for a prime size, by Euclid's algorithm.
func inverse(a, size uint32) uint32 {
	r, s := int64(size), int64(a)
	var x, y int64 = 0, 1
	for s != 0 {
		q := r / s
		r, s = s, r-q*s
		x, y = y, x-q*y
	}
	if x < 0 {
		x += int64(size)
	}
	return uint32(x)
}
