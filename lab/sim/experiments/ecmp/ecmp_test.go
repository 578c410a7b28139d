package ecmp

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// TestSmallHolds checks that every claim also holds in the small variant.
func TestSmallHolds(t *testing.T) {
	outcomes, _, err := experiments.RunAll(context.Background(), []experiments.Experiment{Experiment()}, experiments.Options{Seeds: 1, Workers: 2, Small: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range outcomes[0].Findings {
		if f.Verdict != verdict.Holds {
			t.Errorf("%s: %s: found %+v, want %s", f.Text, f.Verdict, f.Found, f.Wanted)
		}
	}
}

func small(t *testing.T, workers int, set map[string]float64) (*experiments.Result, error) {
	t.Helper()
	e := Experiment()
	all := map[string]float64{"services": 3, "servers": 60, "slots": 251, "followed": 3000}
	for name, v := range set {
		all[name] = v
	}
	return e.Run(experiments.NewRun(context.Background(), &e, 7, workers, all))
}

func TestWorkersChangeNothing(t *testing.T) {
	one, err := small(t, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	three, err := small(t, 3, nil)
	if err != nil || !reflect.DeepEqual(one, three) {
		t.Errorf("%v; with three workers another result", err)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	for want, set := range map[string]map[string]float64{
		"too few for 3 services":      {"servers": 8},
		"more balancers than buckets": {"balancers": 600, "group": 600},
		"not a prime":                 {"slots": 1000},
	} {
		if _, err := small(t, 2, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", set, err, want)
		}
	}
}
