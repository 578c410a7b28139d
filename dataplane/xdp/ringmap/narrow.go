package ringmap

import (
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// A narrow ring has one byte per slot, an index into the list of its different words, which
// follows (struct ring_slot in bpf/balancer/maps.h). It needs an eighth of the memory, and
// packets read one word more. It never changes: the next ring is written elsewhere.
const (
	narrowBit   = bpf.BalancerSchedulerSCHEDULER_NARROW // in the entry's scheduler
	maxDistinct = 256
)

// slots are those of a ring in the kernel, as words.
type slots struct {
	words []uint64
	list  []uint64 // of a narrow ring
	n     int
}

func (s slots) narrow() bool { return s.list != nil }

func (s slots) at(i int) uint64 {
	if s.narrow() {
		return s.list[indexAt(s.words, i)]
	}
	return s.words[i]
}

func indexAt(words []uint64, i int) int { return int(words[i/8] >> (i % 8 * 8) & 0xff) }

func narrowWords(slots int) int { return (slots + 7) / 8 }

// slotsOf returns a ring's slots, none if it does not exist. words are its memory, and what
// follows it.
func slotsOf(of Ring, words []uint64) slots {
	n := int(of.Entry.Slots)
	size := n
	if of.narrow() {
		if size = narrowWords(n); len(words) < size {
			return slots{}
		}
		last := 0
		for i := range n {
			last = max(last, indexAt(words, i))
		}
		size += last + 1
	}
	if len(words) < size {
		return slots{}
	}
	return slotsIn(words[:size], n, of.narrow())
}

// slotsIn returns the slots in the memory of a ring.
func slotsIn(memory []uint64, n int, narrow bool) slots {
	if !narrow {
		return slots{words: memory, n: n}
	}
	return slots{words: memory[:narrowWords(n)], list: memory[narrowWords(n):], n: n}
}

// memory returns how many words the ring has in the kernel.
func (s slots) memory() uint32 { return uint32(len(s.words) + len(s.list)) }

// pack appends the memory of a narrow ring of these words to out, and reports whether there is
// one, and smaller.
func pack(out, words []uint64) ([]uint64, bool) {
	size := narrowWords(len(words))
	index := distinctWords{}
	out = append(out, make([]uint64, size)...)
	for i, w := range words {
		at, ok := index.of(w)
		if !ok {
			return nil, false
		}
		out[i/8] |= uint64(at) << (i % 8 * 8)
	}
	out = append(out, index.words[:index.n]...)
	return out, len(out) < len(words)
}

// distinctWords numbers different words: a hash table with linear probing.
type distinctWords struct {
	words [maxDistinct]uint64
	n     int
	table [4 * maxDistinct]uint16 // number + 1
}

func (d *distinctWords) of(w uint64) (number int, ok bool) {
	const size = uint64(len(d.table))
	for at := w * 0x9e3779b97f4a7c15 >> 54; ; at = (at + 1) % size {
		n := int(d.table[at])
		if n == 0 {
			if d.n == maxDistinct {
				return 0, false
			}
			d.words[d.n] = w
			d.n++
			d.table[at] = uint16(d.n)
			return d.n - 1, true
		}
		if d.words[n-1] == w {
			return n - 1, true
		}
	}
}
