package addresspool

import (
	"math"
	"net/netip"
	"slices"
	"sort"
)

// set holds addresses of one family as a minimal, sorted list of ranges. Cost grows with
// the number of ranges, not of addresses.
type set []Range

// from returns the index of the first range that does not end before a.
func (s set) from(a netip.Addr) int {
	return sort.Search(len(s), func(i int) bool { return !s[i].Last.Less(a) })
}

func (s set) contains(a netip.Addr) bool {
	i := s.from(a)
	return i < len(s) && s[i].Contains(a)
}

// common returns the lowest range of addresses that r and the set have in common.
func (s set) common(r Range) (Range, bool) {
	i := s.from(r.First)
	if i == len(s) || r.Last.Less(s[i].First) {
		return Range{}, false
	}
	return Range{later(s[i].First, r.First), earlier(s[i].Last, r.Last)}, true
}

func (s *set) add(r Range) {
	i := sort.Search(len(*s), func(i int) bool { return !(*s)[i].Last.Less(r.First) || (*s)[i].Last.Next() == r.First })
	j := i
	for ; j < len(*s) && (!r.Last.Less((*s)[j].First) || r.Last.Next() == (*s)[j].First); j++ {
		r = Range{earlier(r.First, (*s)[j].First), later(r.Last, (*s)[j].Last)}
	}
	*s = slices.Replace(*s, i, j, r)
}

func (s *set) remove(r Range) {
	i := s.from(r.First)
	j := i
	var rest []Range
	for ; j < len(*s) && !r.Last.Less((*s)[j].First); j++ {
		whole := (*s)[j]
		if whole.First.Less(r.First) {
			rest = append(rest, Range{whole.First, r.First.Prev()})
		}
		if r.Last.Less(whole.Last) {
			rest = append(rest, Range{r.Last.Next(), whole.Last})
		}
	}
	if i == 0 && len(rest) == 0 {
		*s = (*s)[j:] // the common case, which moves no other range
		return
	}
	*s = slices.Replace(*s, i, j, rest...)
}

// size returns the number of addresses, at most 2^64-1.
func (s set) size() (n uint64) {
	for _, r := range s {
		more := r.size()
		if n > math.MaxUint64-more {
			return math.MaxUint64
		}
		n += more
	}
	return n
}

func earlier(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}

func later(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}
