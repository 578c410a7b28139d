// Package verdict contains verdicts on simulation results: claims that quantities are
// within bounds, and their evaluation over several seeds. It runs nothing.
package verdict

import "math"

// Claim states that a quantity of a result, of type T, is within bounds.
type Claim[T any] struct {
	Text      string
	of        func(T) float64
	low, high float64
	// seeds is the number of seeds it needs; 0 means 1.
	seeds int
	// Why explains why a claim does not hold.
	Why string
}

// Between claims that a quantity is within bounds, both inclusive.
func Between[T any](text string, low, high float64, of func(T) float64) Claim[T] {
	return Claim[T]{Text: text, of: of, low: low, high: high}
}

// AtLeast claims that a quantity is not below a bound.
func AtLeast[T any](text string, low float64, of func(T) float64) Claim[T] {
	return Between(text, low, math.Inf(1), of)
}

// AtMost claims that a quantity is not above a bound.
func AtMost[T any](text string, high float64, of func(T) float64) Claim[T] {
	return Between(text, math.Inf(-1), high, of)
}

// So claims that a condition is true.
func So[T any](text string, of func(T) bool) Claim[T] {
	return Between(text, 1, 1, func(t T) float64 {
		if of(t) {
			return 1
		}
		return 0
	})
}

// Because sets the explanation in case the claim does not hold.
func (c Claim[T]) Because(why string) Claim[T] {
	c.Why = why
	return c
}

// Over sets the number of seeds that a claim needs.
func (c Claim[T]) Over(seeds int) Claim[T] {
	c.seeds = seeds
	return c
}
