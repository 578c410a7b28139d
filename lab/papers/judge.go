package papers

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/lab/sim/lvs"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Verdict is the result of a row or of one of its tests.
type Verdict string

// The verdicts. The last four do not come from tests.
const (
	Holds       Verdict = "holds"
	DoesNot     Verdict = "does not hold"
	Unstable    Verdict = "unstable"
	CannotKnow  Verdict = "cannot be known here"
	Failed      Verdict = "failed"
	NotMeasured Verdict = "not run"
	Missing     Verdict = "missing"
	NoClaim     Verdict = "no claim"
)

// Verdicts contains all of them in the order of the summary.
var Verdicts = []Verdict{Holds, DoesNot, Unstable, CannotKnow, Missing, Failed, NotMeasured, NoClaim}

// Test is a part of a claim: the mean of a quantity is within bounds.
type Test struct {
	Text, Unit string
	low, high  float64
	// of returns samples of the quantity from one repetition.
	of func(*Measured) []float64
	// why explains why the test fails.
	why string
}

func between(text string, low, high float64, unit string, of func(*Measured) []float64) Test {
	return Test{Text: text, Unit: unit, low: low, high: high, of: of}
}

func atLeast(text string, low float64, unit string, of func(*Measured) []float64) Test {
	return between(text, low, math.Inf(1), unit, of)
}

func atMost(text string, high float64, unit string, of func(*Measured) []float64) Test {
	return between(text, math.Inf(-1), high, unit, of)
}

// because sets the explanation in case the test fails.
func (t Test) because(why string) Test {
	t.why = why
	return t
}

// Finding is a test with its result.
type Finding struct {
	Test    string  `json:"test"`
	Wanted  string  `json:"wanted,omitempty"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
	// Found is the mean of N samples with its 95 % confidence interval.
	Found *verdict.Estimate `json:"found,omitempty"`
	N     int               `json:"n"`
	Unit  string            `json:"unit,omitempty"`
}

// judge tests the quantity over all repetitions. The claim holds if the whole confidence
// interval is within the bounds, and does not if the whole interval is outside. If the
// interval contains a bound, or if the repetitions alone have different results, the
// result is unstable.
func (t Test) judge(runs []*Measured) Finding {
	f := Finding{Test: t.Text, Unit: t.Unit, Wanted: t.wanted()}
	var all []float64
	var each []string // verdicts of the repetitions alone
	for _, m := range runs {
		got := t.of(m)
		if len(got) == 0 {
			f.Verdict, f.Reason = CannotKnow, strings.Join(append([]string{fmt.Sprintf("repetition %d has no such measurement", m.Repetition)}, m.Notes...), "; ")
			return f
		}
		each = append(each, string(t.point(t.estimate(got).Mean)))
		all = append(all, got...)
	}
	e := t.estimate(all)
	if math.IsNaN(e.Mean) || math.IsInf(e.Mean, 0) {
		f.Verdict, f.Reason = CannotKnow, "the quantity is not a number"
		return f
	}
	f.Found, f.N = &e, len(all)
	switch {
	case slices.ContainsFunc(each, func(v string) bool { return v != each[0] }):
		f.Verdict, f.Reason = Unstable, "the repetitions differ: "+strings.Join(each, ", ")
	case len(all) < 2:
		f.Verdict, f.Reason = Unstable, "one sample has no confidence interval"
	case t.point(e.Low) == Holds && t.point(e.High) == Holds:
		f.Verdict = Holds
	case e.High < t.low || e.Low > t.high:
		f.Verdict, f.Reason = DoesNot, t.why
	default:
		f.Verdict, f.Reason = Unstable, "the confidence interval contains the bound"
	}
	return f
}

// times is the unit of ratios.
const times = "×"

// estimate returns the mean with its 95 % confidence interval (Student's t); of ratios, the
// geometric mean, so that it does not matter which side is the divisor.
func (t Test) estimate(all []float64) verdict.Estimate {
	if t.Unit != times || slices.Min(all) <= 0 {
		return verdict.Mean(all)
	}
	logs := make([]float64, len(all))
	for i, x := range all {
		logs[i] = math.Log(x)
	}
	e := verdict.Mean(logs)
	return verdict.Estimate{Mean: math.Exp(e.Mean), Low: math.Exp(e.Low), High: math.Exp(e.High)}
}

func (t Test) point(x float64) Verdict {
	if x >= t.low && x <= t.high {
		return Holds
	}
	return DoesNot
}

func (t Test) wanted() string {
	switch {
	case math.IsInf(t.low, -1):
		return "≤ " + number(t.high)
	case math.IsInf(t.high, 1):
		return "≥ " + number(t.low)
	case t.low == t.high:
		return number(t.low)
	}
	return number(t.low) + " to " + number(t.high)
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

// simulated converts the findings of a simulated figure, whose repetitions have different
// seeds.
func simulated(figure string, runs []*Measured) (all []Finding) {
	for n, m := range runs {
		o := m.figure(figure)
		for i, found := range o.Findings {
			f := converted(found, o.Seeds)
			switch {
			case n == 0:
				all = append(all, f)
			case i < len(all) && f.Verdict != all[i].Verdict: // another version may have other claims
				all[i].Reason = fmt.Sprintf("the repetitions differ: %s, %s", all[i].Verdict, f.Verdict)
				all[i].Verdict = Unstable
			}
		}
	}
	return all
}

func converted(f verdict.Finding, seeds int) Finding {
	c := Finding{Test: f.Text, Wanted: f.Wanted, Reason: f.Reason, Found: f.Found, N: seeds}
	switch f.Verdict {
	case verdict.Holds:
		c.Verdict = Holds
	case verdict.DoesNot:
		c.Verdict = DoesNot
	default:
		c.Verdict = CannotKnow
	}
	return c
}

// sum returns the verdict of a row, and its reason.
func sum(findings []Finding) (v Verdict, reason string) {
	v = CannotKnow
	for _, f := range findings {
		if rank(f.Verdict) > rank(v) {
			v = f.Verdict
		}
	}
	var reasons []string
	for _, f := range findings {
		if f.Verdict == v && f.Reason != "" && !slices.Contains(reasons, f.Reason) {
			reasons = append(reasons, f.Reason)
		}
	}
	return v, strings.Join(reasons, "; ")
}

// rank orders verdicts of tests: a row holds if everything that can be known holds.
func rank(v Verdict) int {
	switch v {
	case Holds:
		return 1
	case Unstable:
		return 2
	case DoesNot:
		return 3
	}
	return 0
}

// figure returns a simulated figure of a repetition, or nil.
func (m *Measured) figure(name string) *lvs.Outcome {
	for i := range m.Figures {
		if m.Figures[i].Figure == name {
			return &m.Figures[i]
		}
	}
	return nil
}
