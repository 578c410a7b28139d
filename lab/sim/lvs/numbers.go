package lvs

import (
	"math"
	"slices"
)

func total(ys []float64) float64 {
	sum := 0.0
	for _, y := range ys {
		sum += y
	}
	return sum
}

func mean(ys []float64) float64 { return total(ys) / float64(len(ys)) }

// variation is the standard deviation divided by the mean.
func variation(ys []float64) float64 {
	m, squares := mean(ys), 0.0
	for _, y := range ys {
		squares += (y - m) * (y - m)
	}
	return math.Sqrt(squares/float64(len(ys)-1)) / m
}

// off is the largest deviation from the mean, divided by the mean.
func off(ys []float64) float64 {
	m := mean(ys)
	return max(slices.Max(ys)-m, m-slices.Min(ys)) / m
}

// peak returns the highest point of a curve.
func peak(curve []XY) XY {
	return slices.MaxFunc(curve, func(a, b XY) int {
		if a.Y < b.Y {
			return -1
		}
		return 1
	})
}
