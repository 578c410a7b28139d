package bench

import (
	"math"
	"slices"

	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Spread summarizes several runs.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Low and High are the quartiles: half of the runs are between them.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// SpreadOf summarizes figures, which must not be empty.
func SpreadOf(all []float64) Spread {
	s := slices.Sorted(slices.Values(all))
	at := func(quarters int) float64 { return s[(len(s)-1)*quarters/4] }
	return Spread{Median: s[len(s)/2], Min: s[0], Max: s[len(s)-1], Low: at(1), High: at(3)}
}

// Ratio compares a case with a floor, the cheapest that any program can be. Both are
// measured in every round, one right after the other, and each round yields a ratio. A
// change of the CPU's clock rate therefore affects both.
type Ratio struct {
	Floor string `json:"floor"`
	// Raw is the floor's own figure, Times the ratios of the rounds.
	Raw   Spread `json:"raw"`
	Times Spread `json:"times"`
}

// RatioTo compares a case with a floor, round by round.
func RatioTo(floor string, of, to []float64) Ratio {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	return Ratio{Floor: floor, Raw: SpreadOf(to), Times: SpreadOf(ratios)}
}

// OverFloor returns the row of a case whose measured figure is its ratio to the first
// floor.
func OverFloor(name, unit string, raw []float64, over ...Ratio) Row {
	s, r := over[0].Times, SpreadOf(raw)
	return Row{
		Case: name, Measured: s.Median, Unit: unit, Min: s.Min, Max: s.Max, Runs: len(raw), Raw: &r, Over: over,
	}
}

// Compared returns the row of a case that was measured with two builds in alternation.
// Measured is the median of the ratios of several independent loads, Min and Max are its
// 95 % confidence interval. Raw is this build's figure, and the peer's figure is the
// other build's.
func Compared(name, unit, before string, now, then, ratios []float64) Row {
	low, high := medianInterval(ratios)
	r := SpreadOf(now)
	row := Row{
		Case: name, Measured: SpreadOf(ratios).Median, Unit: UnitTimes, Min: low, Max: high, Runs: len(ratios), Raw: &r,
	}
	return row.ComparedWith(before+", "+unit, SpreadOf(then).Median)
}

// TimesFaster returns the row of a case that alternated with a peer's program. Measured is
// the median of the rounds' ratios, the peer's figure divided by ours: the larger, the
// better. Min and Max are its 95 % confidence interval.
func TimesFaster(name, peer string, ours, theirs []float64) Row {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = theirs[i] / ours[i]
	}
	return Compared(name, "", "", ours, theirs, ratios).ComparedWith(peer, SpreadOf(theirs).Median)
}

// medianInterval returns a confidence interval of at least 95 % for the median of the
// population that the figures are a sample of, for any distribution. It consists of the
// figures with rank k and n+1-k, where fewer than k heads in n coin tosses have a
// probability of at most 2.5 %. For fewer than six figures it is their whole range.
func medianInterval(all []float64) (low, high float64) {
	s := slices.Sorted(slices.Values(all))
	n, k := len(s), 0
	term := math.Pow(0.5, float64(n)) // exactly k of n
	for sum := term; sum <= 0.025; sum += term {
		k++
		term *= float64(n-k+1) / float64(k)
	}
	k = max(k, 1)
	return s[k-1], s[n-k]
}

// NotAbove sets a goal for a row of Compared. It is missed only if the whole interval is
// above the goal.
func (r Row) NotAbove(goal float64) Row {
	met := r.Min <= goal
	r.Goal, r.Met = &goal, &met
	return r
}

// Plain returns the row of figures that are not compared with a floor.
func Plain(name, unit string, all ...float64) Row {
	s := SpreadOf(all)
	return Row{Case: name, Measured: s.Median, Unit: unit, Min: s.Min, Max: s.Max, Runs: len(all), Raw: &s, Samples: all}
}

// Estimated returns a row with the estimated mean of the figures and its confidence
// interval.
func Estimated(name, unit string, all ...float64) Row {
	row := Plain(name, unit, all...)
	mean := verdict.Mean(all)
	row.Mean = &mean
	return row
}
