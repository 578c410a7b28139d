package advertise

import (
	"math"
	"slices"
)

// Bounds of what Shares gives: a kernel's group takes weights of one octet, and
// a resilient one has 512 buckets, of which each next hop needs one.
const (
	maxShare  = 128
	maxShares = 512
	// exact is how far a share may be off for smaller numbers to be taken.
	exact = 0.005
)

// Equal says whether two sets send packets alike.
func (s RouteSet) Equal(o RouteSet) bool {
	return s.Prefix == o.Prefix && s.Uneven == o.Uneven && slices.Equal(s.NextHops, o.NextHops) && slices.Equal(s.Weights, o.Weights)
}

// Weight gives the share of the next hop at an index.
func (s RouteSet) Weight(i int) int {
	if i < len(s.Weights) {
		return s.Weights[i]
	}
	return 1
}

// Shares turns bandwidths of any unit into the smallest whole numbers that are
// in proportion, each of 1 to 128, together at most 512 where there are fewer
// next hops than that. The result depends on the bandwidths alone, so that
// nothing moves where nothing changed. It is nil where all are alike, or one of
// them is no bandwidth.
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

// scaled gives the largest bandwidth the share top and the others theirs, their
// sum, and the largest relative error among them.
func scaled(bandwidths []float64, top int) (shares []int, sum int, off float64) {
	unit := slices.Max(bandwidths) / float64(top)
	for _, b := range bandwidths {
		share := max(1, int(math.Round(b/unit)))
		shares, sum = append(shares, share), sum+share
		off = max(off, math.Abs(float64(share)*unit-b)/b)
	}
	return shares, sum, off
}
