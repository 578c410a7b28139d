package experiments

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// toy returns a table and a curve with n parts, which depend on the seed.
func toy() Experiment {
	return Experiment{
		Name:   "toy",
		Params: []Param{{Name: "parts", Full: 50, Small: 5, Least: 1, Most: 100}},
		Run: func(r *Run) (*Result, error) {
			all := make([]float64, r.Int("parts"))
			if err := r.Each(len(all), func(i int) error {
				all[i] = float64(i) * float64(r.Seed)
				return nil
			}); err != nil {
				return nil, err
			}
			t := Table{Name: "t", Keys: []string{"part"}, Columns: []string{"value", "none"}}
			c := Series{Name: "c"}
			for i, v := range all {
				c.Points = append(c.Points, XY{float64(i), v})
			}
			t.Add([]string{"last"}, all[len(all)-1], math.NaN())
			return &Result{[]Table{t}, []Picture{{Name: "p", Series: []Series{c}}}}, nil
		},
		Claims: []Claim{verdict.AtLeast("the last is large", 5, func(r *Result) float64 { return r.Cell("t", "value", "last") })},
	}
}

func TestSeedsAreJudgedTogetherWithAnyWorkers(t *testing.T) {
	var before []Outcome
	for _, workers := range []int{1, 7} {
		last := 0.0
		o := Options{Seeds: 3, Workers: workers, Small: true, Progress: func(part float64) {
			if part < last {
				t.Errorf("progress goes back from %v to %v", last, part)
			}
			last = part
		}}
		got, interrupted, err := RunAll(context.Background(), []Experiment{toy()}, o)
		if err != nil || interrupted || last != 1 {
			t.Fatalf("%v, interrupted %v, progress %v", err, interrupted, last)
		}
		if before != nil && !reflect.DeepEqual(got, before) {
			t.Errorf("%d workers: %+v, want %+v", workers, got, before)
		}
		before = got
	}
	o := before[0]
	row := o.Tables[0].Rows[0].Values
	if o.Seeds != 3 || o.Verdict != verdict.Holds || row[0].Mean != 8 || row[0].Low >= 8 || row[1] != nil || o.Pictures[0].Curves[0].Points[4].Mean != 8 {
		t.Errorf("%+v", o)
	}
}

func TestAnInterruptedRunKeepsItsWholeSeeds(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	second := toy()
	second.Name = "second"
	got, interrupted, err := RunAll(ctx, []Experiment{toy(), second}, Options{Seeds: 2, Workers: 1, Small: true, Progress: func(part float64) {
		if part > 0.3 { // the first experiment is half of it
			stop()
		}
	}})
	if err != nil || !interrupted || got[0].Seeds != 1 || got[1].Seeds != 0 || got[1].Verdict != verdict.Unsettled {
		t.Errorf("%v, interrupted %v: %+v", err, interrupted, got)
	}
}

func TestParametersAreChecked(t *testing.T) {
	all := []Experiment{toy()}
	for set, want := range map[string]string{
		"parts": "101 is not from 1 to 100",
		"other": "unknown parameter other: the selected experiments have parts",
	} {
		o := Options{Set: map[string]float64{set: 101}}
		if err := o.Check(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
	o := Options{Set: map[string]float64{"parts": math.NaN()}}
	if o.Check(all) == nil {
		t.Error("what is no number is taken")
	}
	o = Options{Seeds: 1, Workers: 1, Set: map[string]float64{"parts": 2}}
	got, _, err := RunAll(context.Background(), all, o)
	if err != nil || o.Check(all) != nil || got[0].Params["parts"] != 2 || len(got[0].Pictures[0].Curves[0].Points) != 2 {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestWhatGoesWrongIsSaid(t *testing.T) {
	broken := errors.New("broken")
	e := toy()
	e.Run = func(r *Run) (*Result, error) {
		return nil, r.Each(9, func(i int) error {
			if i > 3 {
				return broken
			}
			return nil
		})
	}
	if _, _, err := RunAll(context.Background(), []Experiment{e}, Options{Seeds: 1, Workers: 2}); !errors.Is(err, broken) {
		t.Errorf("a part's error becomes %v", err)
	}
	e.Claims = nil
	e.Run = func(r *Run) (*Result, error) {
		t := Table{Name: "t", Columns: []string{"value"}}
		for range r.Seed {
			t.Add(nil, 1)
		}
		return &Result{Tables: []Table{t}}, nil
	}
	if _, _, err := RunAll(context.Background(), []Experiment{e}, Options{Seeds: 2}); !errors.Is(err, errShape) {
		t.Errorf("seeds of another shape: %v", err)
	}
}
