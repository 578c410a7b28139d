package verdict

import (
	"fmt"
	"math"
	"strconv"
)

// Verdict is the result of judging a claim.
type Verdict string

// Verdicts.
const (
	Holds     Verdict = "holds"
	DoesNot   Verdict = "does not"
	Unknown   Verdict = "cannot be known"
	Unsettled Verdict = "interrupted" // the runs did not complete
	None      Verdict = "done"        // there were no claims
)

// Finding is a claim with its verdict.
type Finding struct {
	Text    string  `json:"text"`
	Wanted  string  `json:"wanted,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Found is the quantity's mean over the seeds.
	Found  *Estimate `json:"found,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Estimate is a mean over seeds. Low and High are its 95 % confidence interval (Student's
// t). With one seed, both are equal to the mean.
type Estimate struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// student contains the 97.5 % quantiles of Student's t by degrees of freedom. Beyond its
// end the last one is a close upper bound.
var student = []float64{0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
	2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

// Mean estimates the mean from one value per seed, of which there must be at least one.
func Mean(all []float64) Estimate {
	n := float64(len(all))
	sum, squares := 0.0, 0.0
	for _, x := range all {
		sum += x
	}
	mean := sum / n
	for _, x := range all {
		squares += (x - mean) * (x - mean)
	}
	if len(all) < 2 {
		return Estimate{mean, mean, mean}
	}
	half := student[min(len(all)-1, len(student)-1)] * math.Sqrt(squares/(n-1)/n)
	return Estimate{mean, mean - half, mean + half}
}

// Judge evaluates a claim on the results of the seeds.
func (c Claim[T]) Judge(seeds []T) Finding {
	f := Finding{Text: c.Text, Wanted: c.wanted(), Verdict: Unknown, Reason: c.Why}
	all := make([]float64, len(seeds))
	for i, result := range seeds {
		all[i] = c.of(result)
	}
	e := Mean(all)
	if !math.IsNaN(e.Low) { // NaN for a ratio to zero, for example
		f.Found = &e
	}
	switch {
	case len(seeds) < c.seeds:
		f.Reason = fmt.Sprintf("other seeds differ by more: it takes %d of them", c.seeds)
	case e.Mean >= c.low && e.Mean <= c.high:
		f.Verdict, f.Reason = Holds, ""
	default:
		f.Verdict = DoesNot
	}
	if f.Verdict != Unknown && (e.Low < c.low && c.low <= e.High || e.Low <= c.high && c.high < e.High) {
		f.Reason = join(f.Reason, "the bound is within the confidence interval")
	}
	return f
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// wanted formats the bounds.
func (c Claim[T]) wanted() string {
	low, high := !math.IsInf(c.low, -1), !math.IsInf(c.high, 1)
	switch {
	case c.low == c.high && c.low == 1:
		return "true"
	case c.low == c.high:
		return number(c.low)
	case low && high:
		return number(c.low) + " to " + number(c.high)
	case low:
		return ">= " + number(c.low)
	default:
		return "<= " + number(c.high)
	}
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 5, 64) }

// Sum returns the overall verdict: the claims hold if all that can be checked do.
func Sum(findings []Finding) Verdict {
	v := Unknown
	for _, f := range findings {
		switch {
		case f.Verdict == DoesNot:
			return DoesNot
		case f.Verdict == Holds:
			v = Holds
		}
	}
	return v
}
