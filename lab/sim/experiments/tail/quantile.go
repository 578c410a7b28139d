package tail

import "math"

// quantile returns the smallest of the sorted values that is not below a share p of them.
func quantile(sorted []float64, p float64) float64 {
	i := int(math.Ceil(float64(p*float64(len(sorted))))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}
