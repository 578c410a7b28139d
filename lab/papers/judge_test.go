package papers

import (
	"math"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/lvs"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// repetitions returns one repetition for each list of samples of the case x.
func repetitions(all ...[]float64) (runs []*Measured) {
	for i, samples := range all {
		runs = append(runs, &Measured{Repetition: i + 1, Samples: map[string][]float64{"x": samples, "y": {2, 2, 2}}, Notes: []string{"a note"}})
	}
	return runs
}

func TestJudge(t *testing.T) {
	low := atLeast("at least 10", 10, "", samples("x")).because("it is small")
	for name, c := range map[string]struct {
		test    Test
		runs    []*Measured
		verdict Verdict
		reason  string
	}{
		"inside":              {low, repetitions([]float64{11, 12}, []float64{11, 12}), Holds, ""},
		"outside":             {low, repetitions([]float64{1, 2}, []float64{1, 2}), DoesNot, "it is small"},
		"disagree":            {low, repetitions([]float64{11, 11}, []float64{9, 9}), Unstable, "differ: holds, does not hold"},
		"straddles":           {low, repetitions([]float64{8, 20}, []float64{9, 15}), Unstable, "contains the bound"},
		"straddles, below":    {low, repetitions([]float64{1, 18}, []float64{5, 14}), Unstable, "contains the bound"},
		"one sample":          {low, repetitions([]float64{100}), Unstable, "one sample"},
		"no spread":           {between("all", 3, 3, "", samples("x")), repetitions([]float64{3}, []float64{3}), Holds, ""},
		"not measured":        {low, repetitions([]float64{11, 11}, nil), CannotKnow, "repetition 2 has no such measurement; a note"},
		"ratio":               {between("x by y", 0.5, 3, "", ratio("x", "y")), repetitions([]float64{4, 4, 4}, []float64{4, 4, 5}), Holds, ""},
		"ratio, skewed":       {between("x by y", 0.9, 1.2, times, ratio("x", "y")), repetitions([]float64{1, 4, 2}, []float64{2, 2, 2}), Unstable, "contains"},
		"division by nothing": {atLeast("x by z", 0, times, ratio("x", "x")), repetitions([]float64{0, 0}), CannotKnow, "not a number"},
		"difference":          {atMost("x less y", 1, "", difference("x", "y")), repetitions([]float64{2, 2}, []float64{2.5, 2.5}), Holds, ""},
	} {
		f := c.test.judge(c.runs)
		if f.Verdict != c.verdict || !strings.Contains(f.Reason, c.reason) {
			t.Errorf("%s: %s (%s), want %s (%s)", name, f.Verdict, f.Reason, c.verdict, c.reason)
		}
	}
}

// TestRatiosAreGeometric: half as fast and twice as fast is as fast.
func TestRatiosAreGeometric(t *testing.T) {
	same := between("x by y", 0.99, 1.01, times, ratio("x", "y"))
	if f := same.judge(repetitions([]float64{1, 4}, []float64{4, 1})); math.Abs(f.Found.Mean-1) > 1e-9 {
		t.Errorf("the mean of 1/2 and 2 is %v", f.Found)
	}
}

func TestLows(t *testing.T) {
	all := make([]float64, 100)
	for i := range all {
		all[i] = 5
	}
	all[7] = 1e9
	if got := lows(all); len(got) != chunks || got[0] != 5 {
		t.Errorf("lows of noisy samples: %v", got)
	}
	all[7] = 0
	if got := highs(all); len(got) != chunks || got[0] != 5 {
		t.Errorf("highs of noisy samples: %v", got)
	}
}

// TestSimulated converts what the simulator found.
func TestSimulated(t *testing.T) {
	outcome := func(second verdict.Verdict) *Measured {
		found := verdict.Estimate{Mean: 1, Low: 1, High: 1}
		return &Measured{Figures: []lvs.Outcome{{Figure: "fig8", Seeds: 20, Findings: []verdict.Finding{
			{Text: "measured", Wanted: "1", Verdict: second, Found: &found},
			{Text: "unknown", Verdict: verdict.Unknown, Reason: "chance"},
		}}}}
	}
	all := simulated("fig8", []*Measured{outcome(verdict.Holds), outcome(verdict.Holds)})
	if all[0].Verdict != Holds || all[0].N != 20 {
		t.Errorf("measured: %+v", all[0])
	}
	if v, _ := sum(all); v != Holds {
		t.Errorf("a row with something unknown: %s", v)
	}
	all = simulated("fig8", []*Measured{outcome(verdict.Holds), outcome(verdict.DoesNot)})
	if v, reason := sum(all); v != Unstable || !strings.Contains(reason, "differ") {
		t.Errorf("other seeds differ: %s, %s", v, reason)
	}
}

func TestSum(t *testing.T) {
	for _, c := range []struct {
		verdicts []Verdict
		want     Verdict
	}{
		{[]Verdict{Holds, Holds}, Holds},
		{[]Verdict{Holds, Unstable}, Unstable},
		{[]Verdict{DoesNot, Unstable, Holds}, DoesNot},
		{[]Verdict{CannotKnow, Holds}, Holds},
		{[]Verdict{CannotKnow}, CannotKnow},
	} {
		var all []Finding
		for _, v := range c.verdicts {
			all = append(all, Finding{Verdict: v})
		}
		if got, _ := sum(all); got != c.want {
			t.Errorf("%v: %s, want %s", c.verdicts, got, c.want)
		}
	}
}
