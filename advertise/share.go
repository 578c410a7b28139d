package advertise

import (
	"math"
	"slices"
)

// Limits of the results of Shares: a next-hop group in the kernel has weights of one
// octet, and a resilient one has 512 buckets, of which each next hop needs at least one.
const (
	maxShare  = 128
	maxShares = 512
	// exact is the relative error of a share up to which smaller numbers are accepted.
	exact = 0.005
)

// Equal reports whether two sets distribute packets in the same way.
func (s RouteSet) Equal(o RouteSet) bool {
	return s.Prefix == o.Prefix && s.Uneven == o.Uneven && slices.Equal(s.NextHops, o.NextHops) && slices.Equal(s.Weights, o.Weights)
}

// Weight returns the share of the next hop at an index.
func (s RouteSet) Weight(i int) int {
	if i < len(s.Weights) {
		return s.Weights[i]
	}
	return 1
}

// Shares converts bandwidths of any unit into the smallest integers in proportion, each
// from 1 to 128 and together at most 512, if there are fewer next hops than that. The
// result depends only on the bandwidths, so that nothing moves if nothing changes. It is
// nil if all are equal, or one of them is not a valid bandwidth.
func Shares(bandwidths []float64) []int {
	if len(bandwidths) == 0 {
		return nil
	}
	for _, b := range bandwidths {
		if !(b > 0) || math.IsInf(b, 0) {
			return nil
		}
	}
	if slices.Max(bandwidths) == slices.Min(bandwidths) {
		return nil
	}
	best, off := []int(nil), math.Inf(1)
	for top := 1; top <= maxShare && off > exact; top++ {
		if shares, sum, o := scaled(bandwidths, top); sum <= max(maxShares, len(shares)) && o < off {
			best, off = shares, o
		}
	}
	if slices.Max(best) == slices.Min(best) {
		return nil
	}
	return best
}

// scaled gives the largest bandwidth the share top and the others theirs in proportion.
// It returns the shares, their sum, and their largest relative error.
func scaled(bandwidths []float64, top int) (shares []int, sum int, off float64) {
	unit := slices.Max(bandwidths) / float64(top)
	for _, b := range bandwidths {
		share := max(1, int(math.Round(b/unit)))
		shares, sum = append(shares, share), sum+share
		off = max(off, math.Abs(float64(share)*unit-b)/b)
	}
	return shares, sum, off
}
