// Package resilient assigns the buckets of a resilient group to its next hops, like Linux
// (net/ipv4/nexthop.c). When the hops change, each one must have a number of buckets
// according to its weight. Buckets of removed hops move, and so do excess buckets as long
// as other hops lack some. The caller decides when they may move.
package resilient

// Bounds divides a total by weights, and returns the end of each part.
func Bounds(of uint64, weights []uint32) []uint64 {
	var total, sum uint64
	for _, w := range weights {
		total += uint64(w)
	}
	ends := make([]uint64, len(weights))
	for i, w := range weights {
		sum += uint64(w)
		ends[i] = (of*sum + total/2) / total
	}
	return ends
}

// Shares contains the current and the wanted number of buckets of each hop.
type Shares[H comparable] struct {
	hops        []H
	has, wanted []int
	place       map[H]int
	lacking     int // no hop before this index lacks buckets
}

// NewShares counts the buckets of a table. hop returns the current hop of a bucket.
func NewShares[H comparable](hops []H, weights []uint32, buckets int, hop func(bucket int) H) *Shares[H] {
	s := &Shares[H]{hops: hops, has: make([]int, len(hops)), wanted: make([]int, len(hops)), place: make(map[H]int, len(hops))}
	before := uint64(0)
	for i, end := range Bounds(uint64(buckets), weights) {
		s.wanted[i], before = int(end-before), end
		s.place[hops[i]] = i
	}
	for b := range buckets {
		if i, ok := s.place[hop(b)]; ok {
			s.has[i]++
		}
	}
	return s
}

// Uneven reports whether a hop lacks buckets.
func (s *Shares[H]) Uneven() bool {
	for s.lacking < len(s.hops) && s.has[s.lacking] >= s.wanted[s.lacking] {
		s.lacking++
	}
	return s.lacking < len(s.hops)
}

// Stays reports whether a bucket stays with its hop. gone is set if the hop is no longer
// in the group.
func (s *Shares[H]) Stays(of H) (stays, gone bool) {
	i, there := s.place[of]
	return there && (s.has[i] <= s.wanted[i] || !s.Uneven()), !there
}

// Move removes a bucket from a hop, and returns its new hop: the first that lacks one, or
// nobody if none does.
func (s *Shares[H]) Move(of, nobody H) H {
	to := nobody
	if s.Uneven() {
		to = s.hops[s.lacking]
		s.has[s.lacking]++
	}
	if i, there := s.place[of]; there {
		s.has[i]--
	}
	return to
}
