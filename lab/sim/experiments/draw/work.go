package draw

import (
	"fmt"

	"github.com/fairlead/fairlead/lab/sim/stochastic"
)

// Work is the distribution of the amount of work per request, with mean 1.
type Work struct {
	Name string
	// Second is the second moment, the mean of the squares.
	Second float64
	draw   stochastic.Draw
}

// Draw returns the work of one request.
func (w Work) Draw(s Stream) float64 { return w.draw(s.s) }

// Constant is always 1.
func Constant() Work { return Work{"constant", 1, stochastic.Always(1)} }

// Exponential is the exponential, memoryless distribution.
func Exponential() Work { return Work{"exponential", 2, exponential} }

// Lognormal is a log-normal distribution. sigma is the standard deviation of the
// logarithm.
func Lognormal(sigma float64) Work {
	square := float64(sigma * sigma)
	return Work{fmt.Sprintf("lognormal (σ %g)", sigma), stochastic.Exp(square), stochastic.Lognormal(stochastic.Exp(-square/2), sigma)}
}

// Pareto is a bounded Pareto distribution from a minimum to ratio times the minimum: a
// few requests have most of the work. Its exponent alpha must be above 1, and not 2.
func Pareto(alpha, ratio float64) Work {
	power := func(x, y float64) float64 { return stochastic.Exp(float64(y * stochastic.Ln(x))) }
	// The n-th moment if the minimum is 1.
	moment := func(n float64) float64 {
		return alpha / (alpha - n) * (1 - power(ratio, n-alpha)) / (1 - power(ratio, -alpha))
	}
	least := 1 / moment(1)
	return Work{fmt.Sprintf("Pareto (α %g, 1 to %g)", alpha, ratio), float64(least*least) * moment(2), stochastic.Pareto(alpha, least, float64(least*ratio))}
}
