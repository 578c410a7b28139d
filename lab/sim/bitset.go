package sim

// bitset is a set of small integers.
type bitset []uint64

func (b bitset) has(i int32) bool { return int(i>>6) < len(b) && b[i>>6]>>(i&63)&1 == 1 }

func (b *bitset) add(i int32) {
	for len(*b) <= int(i>>6) {
		*b = append(*b, 0)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

func (b bitset) remove(i int32) {
	if b.has(i) {
		b[i>>6] &^= 1 << (i & 63)
	}
}
