// Package resilient is how a resilient group of next hops gives buckets to them, as
// Linux does (net/ipv4/nexthop.c): when the hops change, each is to have a number of
// buckets by its weight. Buckets of hops that have gone move, and those of hops that
// have too many, as far as others lack some. When they may is for who asks.
package resilient

// Bounds divides so many by weights: where the part of each ends.
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

// Shares are how many buckets each hop has, and is to have.
type Shares[H comparable] struct {
	hops        []H
	has, wanted []int
	place       map[H]int
	lacking     int // no hop before lacks buckets
}

// NewShares counts those of a table with so many buckets, of which hop tells the
// hops that they have now.
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

// Uneven says whether a hop lacks buckets.
func (s *Shares[H]) Uneven() bool {
	for s.lacking < len(s.hops) && s.has[s.lacking] >= s.wanted[s.lacking] {
		s.lacking++
	}
	return s.lacking < len(s.hops)
}

// Stays says whether a bucket stays where it is; gone is whether its hop is none of
// the group any more.
func (s *Shares[H]) Stays(of H) (stays, gone bool) {
	i, there := s.place[of]
	return there && (s.has[i] <= s.wanted[i] || !s.Uneven()), !there
}

// Move takes a bucket away from a hop, and gives who gets it: the first that lacks
// one, or nobody where none does.
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
