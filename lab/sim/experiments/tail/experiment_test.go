package tail

import (
	"testing"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/beyondtest"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

func TestSameOnAnyMachine(t *testing.T) { beyondtest.Same(t, Experiment(), 0xedd07453afa41d7) }

// Claims that need long runs or many load balancers are not checked here.
func TestVerdicts(t *testing.T) {
	const yes, unseen = verdict.Holds, verdict.Unknown
	beyondtest.Verdicts(t, Experiment(), unseen, yes, unseen, unseen, yes, unseen, yes, unseen, yes, unseen)
}

// With equal weights, schedulers that consider weights behave like those that do not.
func TestEqualWeightsMakeNoDifference(t *testing.T) {
	e := Experiment()
	r, err := e.Run(experiments.NewRun(t.Context(), &e, 3, 2, map[string]float64{"requests": 1000}))
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{{"rr", "wrr"}, {"lc", "wlc"}} {
		for _, load := range []string{"0.5", "0.95"} {
			for _, column := range quantiles {
				if a, b := r.Cell(byLoad, column, "pareto", load, pair[0]), r.Cell(byLoad, column, "pareto", load, pair[1]); a != b {
					t.Errorf("%s at %s: %s of %v and %v", pair, load, column, a, b)
				}
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	e := Experiment()
	if _, err := e.Run(experiments.NewRun(t.Context(), &e, 1, 1, map[string]float64{"alpha": 2})); err == nil {
		t.Error("alpha 2 has no formula")
	}
	for field, c := range map[string]Case{
		"servers": {}, "balancers": {Servers: alike(1, 1)}, "load": {Servers: alike(1, 1), Balancers: 1, Load: 1},
		"age":      {Servers: alike(1, 1), Balancers: 1, Load: 0.5, View: Reports},
		"requests": {Servers: alike(1, 1), Balancers: 1, Load: 0.5, View: Own},
	} {
		if _, err := c.Run(); err == nil {
			t.Errorf("%s: not refused", field)
		}
	}
}
