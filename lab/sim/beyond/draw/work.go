package draw

import (
	"fmt"

	"github.com/fairlead/fairlead/lab/sim"
)

// Work is how much there is to do for a request: a distribution with mean 1.
type Work struct {
	Name string
	// Second is its second moment, the mean of the squares.
	Second float64
	draw   sim.Draw
}

// Draw gives one request's.
func (w Work) Draw(s Stream) float64 { return w.draw(s.s) }

// Constant is always the same.
func Constant() Work { return Work{"constant", 1, sim.Always(1)} }

// Exponential has no memory.
func Exponential() Work { return Work{"exponential", 2, exponential} }

// Lognormal is what e to the power of a normal number is, of that deviation.
func Lognormal(sigma float64) Work {
	square := float64(sigma * sigma)
	return Work{fmt.Sprintf("lognormal (σ %g)", sigma), sim.Exp(square), sim.Lognormal(sim.Exp(-square/2), sigma)}
}

// Pareto is from a least to ratio times as much, few of which have most of all
// work. Its exponent is above 1, and not 2.
func Pareto(alpha, ratio float64) Work {
	power := func(x, y float64) float64 { return sim.Exp(float64(y * sim.Ln(x))) }
	// The mean of the nth powers, where the least is 1.
	moment := func(n float64) float64 {
		return alpha / (alpha - n) * (1 - power(ratio, n-alpha)) / (1 - power(ratio, -alpha))
	}
	least := 1 / moment(1)
	return Work{fmt.Sprintf("Pareto (α %g, 1 to %g)", alpha, ratio), float64(least*least) * moment(2), sim.Pareto(alpha, least, float64(least*ratio))}
}
