package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

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

func (s Spread) times(by float64) Spread {
	return Spread{Median: s.Median * by, Min: s.Min * by, Max: s.Max * by, Low: s.Low * by, High: s.High * by}
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

// Scaled returns the row of a case, scaled to a machine on which the first floor takes
// there: the ratios to that floor times there.
func Scaled(name, unit string, raw []float64, there float64, over ...Ratio) Row {
	s, r := over[0].Times.times(there), SpreadOf(raw)
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
		Case: name, Measured: SpreadOf(ratios).Median, Unit: unitTimes, Min: low, Max: high, Runs: len(ratios), Raw: &r,
	}
	return row.ComparedWith(before+", "+unit, SpreadOf(then).Median)
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
	return Row{Case: name, Measured: s.Median, Unit: unit, Min: s.Min, Max: s.Max, Runs: len(all), Raw: &s}
}

// Estimated returns a row with the estimated mean of the figures and its confidence
// interval.
func Estimated(name, unit string, all ...float64) Row {
	row := Plain(name, unit, all...)
	mean := verdict.Mean(all)
	row.Mean = &mean
	return row
}

// writePaired prints one line per row: the figure measured here, the ratio to its floor
// with the quartiles of the rounds, and the scaled figure, or the measured one if there
// is no floor. The last column contains other floors it was compared with.
func (r *Report) writePaired(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CASE\tHERE\t/ FLOOR\tHALF WITHIN\tSCALED\tGOAL\tMET\tPEER\tALSO")
	for _, row := range r.Rows {
		here, times, within := "", "", ""
		var also []string
		for i, over := range row.Over {
			if i == 0 {
				here = figure(row.Raw.Median)
				times, within = fmt.Sprintf("%.2f", over.Times.Median), fmt.Sprintf("%.2f-%.2f", over.Times.Low, over.Times.High)
				continue
			}
			also = append(also, fmt.Sprintf("%.2f x %s (%s)", over.Times.Median, over.Floor, figure(over.Raw.Median)))
		}
		measured := figure(row.Measured)
		if len(row.Over) == 0 {
			measured += " " + row.Unit
			if row.Raw != nil && row.Runs > 1 {
				within = figure(row.Raw.Low) + "-" + figure(row.Raw.High)
			}
		}
		goal, met, peer := row.comparison()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.Case, here, times, within, measured, goal, met, peer, strings.Join(also, ", "))
	}
	return w.Flush()
}
