// Package claim is what can be said of a simulation's results, as quantities within
// bounds, and what came of it over several seeds. It runs nothing.
package claim

import "math"

// Claim is something that is said of a result, of type T, as a quantity within
// bounds.
type Claim[T any] struct {
	Says string
	// of is nil where nothing can be measured.
	of        func(T) float64
	low, high float64
	// known is false where the quantity says nothing on whether the claim holds.
	known bool
	// seeds are how many it takes, 0 as 1.
	seeds int
	// Why explains a claim that does not hold, or that nobody can check.
	Why string
}

// Between claims that a quantity is within bounds, both included.
func Between[T any](says string, low, high float64, of func(T) float64) Claim[T] {
	return Claim[T]{Says: says, of: of, low: low, high: high, known: true}
}

// AtLeast claims that a quantity is not below a bound.
func AtLeast[T any](says string, low float64, of func(T) float64) Claim[T] {
	return Between(says, low, math.Inf(1), of)
}

// AtMost claims that a quantity is not above a bound.
func AtMost[T any](says string, high float64, of func(T) float64) Claim[T] {
	return Between(says, math.Inf(-1), high, of)
}

// So claims something that is so or not.
func So[T any](says string, of func(T) bool) Claim[T] {
	return Between(says, 1, 1, func(t T) float64 {
		if of(t) {
			return 1
		}
		return 0
	})
}

// ByModel is what the model says itself, for a reason.
func ByModel[T any](says, why string) Claim[T] { return Claim[T]{Says: says, Why: why, known: true} }

// Unknowable is what cannot be checked, for a reason.
func Unknowable[T any](says, why string) Claim[T] { return Claim[T]{Says: says, Why: why} }

// Observed is what cannot be checked, either, but has a quantity to look at.
func Observed[T any](says, why string, of func(T) float64) Claim[T] {
	return Claim[T]{Says: says, Why: why, of: of}
}

// Because gives a claim its reason, should it not hold.
func (c Claim[T]) Because(why string) Claim[T] {
	c.Why = why
	return c
}

// Measures says whether there is a quantity.
func (c Claim[T]) Measures() bool { return c.of != nil }

// Over says how many seeds a claim takes.
func (c Claim[T]) Over(seeds int) Claim[T] {
	c.seeds = seeds
	return c
}
