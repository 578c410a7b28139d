package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fairlead/fairlead/lab/sim/claim"
)

// Spread is what several runs gave.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Low and High hold the middle half of them.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// SpreadOf sums up figures, of which there must be one.
func SpreadOf(all []float64) Spread {
	s := slices.Sorted(slices.Values(all))
	at := func(quarters int) float64 { return s[(len(s)-1)*quarters/4] }
	return Spread{Median: s[len(s)/2], Min: s[0], Max: s[len(s)-1], Low: at(1), High: at(3)}
}

func (s Spread) times(by float64) Spread {
	return Spread{Median: s.Median * by, Min: s.Min * by, Max: s.Max * by, Low: s.Low * by, High: s.High * by}
}

// Ratio is how many times as long as a floor, what no program can be cheaper
// than, a case took. Both are measured in every round, one right after the
// other, and each round gives a ratio: a machine whose clock wanders slows both.
type Ratio struct {
	Floor string `json:"floor"`
	// Raw is the floor's own figure, Times the rounds' ratios.
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

// Scaled gives the row of a case on a machine where the first of these floors
// takes so much: the ratios to it, times that.
func Scaled(name, unit string, raw []float64, there float64, over ...Ratio) Row {
	s, r := over[0].Times.times(there), SpreadOf(raw)
	return Row{
		Case: name, Measured: s.Median, Unit: unit, Min: s.Min, Max: s.Max, Runs: len(raw), Raw: &r, Over: over,
	}
}

// Compared gives the row of a case that was measured by two builds alternately: the
// median of the ratios of several loads, of which none depends on another, and as
// Min and Max the interval that holds it with 95 %. Raw is what this build took, and
// the peer's figure is the other's.
func Compared(name, unit, before string, now, then, ratios []float64) Row {
	low, high := medianInterval(ratios)
	r := SpreadOf(now)
	row := Row{
		Case: name, Measured: SpreadOf(ratios).Median, Unit: unitTimes, Min: low, Max: high, Runs: len(ratios), Raw: &r,
	}
	return row.Beside(before+", "+unit, SpreadOf(then).Median)
}

// medianInterval holds the median of what figures are a sample of with at least
// 95 %, whatever its distribution: figures of rank k and n+1-k, where fewer than k
// of n throws of a coin come up with at most 2.5 %. Of fewer than six figures it is
// all that there are.
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

// NotAbove gives a row of Compared the goal that its interval must not be wholly
// above of.
func (r Row) NotAbove(goal float64) Row {
	met := r.Min <= goal
	r.Goal, r.Met = &goal, &met
	return r
}

// Plain gives the row of figures that are not compared with a floor.
func Plain(name, unit string, all ...float64) Row {
	s := SpreadOf(all)
	return Row{Case: name, Measured: s.Median, Unit: unit, Min: s.Min, Max: s.Max, Runs: len(all), Raw: &s}
}

// Estimated gives the row of figures whose mean matters, with how sure it is.
func Estimated(name, unit string, all ...float64) Row {
	row := Plain(name, unit, all...)
	mean := claim.Mean(all)
	row.Mean = &mean
	return row
}

// writePaired writes a line for each row: what it took here, the ratio to its
// floor with the middle half of the rounds', and scaled, or measured as it is;
// at the end what other floors it was compared with.
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
		goal, met, peer := row.beside()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.Case, here, times, within, measured, goal, met, peer, strings.Join(also, ", "))
	}
	return w.Flush()
}
