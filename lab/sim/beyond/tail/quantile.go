package tail

import "math"

// quantile gives that of sorted values: the least one that so many are not above.
func quantile(sorted []float64, p float64) float64 {
	i := int(math.Ceil(float64(p*float64(len(sorted))))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}
