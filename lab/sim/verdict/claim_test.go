package verdict

import (
	"math"
	"testing"
)

func TestEstimateIsStudents(t *testing.T) {
	e := Mean([]float64{1, 2, 3})
	if half := 4.303 / math.Sqrt(3); e.Mean != 2 || math.Abs(e.High-2-half) > 1e-9 || math.Abs(2-e.Low-half) > 1e-9 {
		t.Errorf("%+v", e)
	}
	if one := Mean([]float64{5}); one != (Estimate{5, 5, 5}) {
		t.Errorf("of one seed: %+v", one)
	}
}

func TestVerdicts(t *testing.T) {
	value := func(x float64) float64 { return x }
	seeds := func(xs ...float64) []float64 { return xs }
	for name, c := range map[string]struct {
		claim  Claim[float64]
		seeds  []float64
		want   Verdict
		reason string
	}{
		"within":         {Between("", 1, 2, value), seeds(2), Holds, ""},
		"above":          {Between("", 1, 2, value).Because("x"), seeds(2.1), DoesNot, "x"},
		"at least":       {AtLeast("", 1, value), seeds(1), Holds, ""},
		"not at most":    {AtMost("", 1, value), seeds(2), DoesNot, ""},
		"near the bound": {AtLeast("", 1.9, value), seeds(1, 2, 3), Holds, "the bound is within the confidence interval"},
		"far from it":    {AtLeast("", -9, value), seeds(1, 2, 3), Holds, ""},
		"too few seeds":  {AtLeast("", 1, value).Over(5), seeds(9), Unknown, "other seeds differ by more: it takes 5 of them"},
		"not a number":   {AtLeast("", 1, value), seeds(math.NaN()), DoesNot, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.claim.Judge(c.seeds)
			if f.Verdict != c.want || f.Reason != c.reason {
				t.Errorf("%s because %q, want %s because %q", f.Verdict, f.Reason, c.want, c.reason)
			}
			if f.Found != nil && math.IsNaN(f.Found.Mean) {
				t.Error("found what is not a number, which JSON has no word for")
			}
		})
	}
	if v := Sum([]Finding{{Verdict: Holds}, {Verdict: Unknown}}); v != Holds {
		t.Errorf("what can be known holds: %s", v)
	}
	if v := Sum([]Finding{{Verdict: Holds}, {Verdict: DoesNot}}); v != DoesNot {
		t.Errorf("something does not hold: %s", v)
	}
}
