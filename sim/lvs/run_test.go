package lvs

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
)

func TestEveryFigureIsThere(t *testing.T) {
	var want []string
	for n := 8; n <= 45; n++ {
		if n != 21 && n != 24 && n != 26 { // drawings, and one that says nothing
			want = append(want, fmt.Sprint("fig", n))
		}
		if n == 25 {
			want = append(want, "fig25-finite") // ours
		}
	}
	var got []string
	for _, f := range Figures() {
		got = append(got, f.Name)
		if len(f.Claims) == 0 || len(f.Series) == 0 || f.Title == "" {
			t.Errorf("%s says or shows nothing", f.Name)
		}
		for _, c := range f.Claims {
			if c.of == nil && c.Why == "" {
				t.Errorf("%s: %q has neither a quantity nor a reason", f.Name, c.Says)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("figures are %v", got)
	}
}

// flat is results in which nothing ever happens.
func flat(jobs []job) map[job]*Result {
	all := map[job]*Result{}
	for _, j := range jobs {
		none := make([]float64, j.setup.Servers)
		r := &Result{}
		for range j.setup.Seconds {
			r.Seconds = append(r.Seconds, Second{ReceivedBy: none, SentBy: none, LostBy: none})
		}
		all[j] = r
	}
	return all
}

// TestClaimsLookAtPointsThatAreThere also where no packet moves; then some of
// what the paper says must be wrong.
func TestClaimsLookAtPointsThatAreThere(t *testing.T) {
	figures := Figures()
	o := Options{Clock: Compat, Seeds: 2}
	r := report(figures, o, flat(jobs(figures, o.Seeds)))
	wrong := 0
	for _, f := range r.Figures {
		if f.Seeds != 2 || len(f.Curves) == 0 {
			t.Errorf("%s has %d seeds and %d curves", f.Figure, f.Seeds, len(f.Curves))
		}
		if f.Verdict == DoesNot {
			wrong++
		}
	}
	if wrong < 20 || r.Interrupted {
		t.Errorf("of a dead network %d figures do not hold, interrupted %v", wrong, r.Interrupted)
	}
}

func TestEachRunIsMadeOnce(t *testing.T) {
	all := jobs(Figures(), 2)
	seen := map[job]bool{}
	for i, j := range all {
		if seen[j] {
			t.Fatalf("%+v twice", j)
		}
		seen[j] = true
		if i > 0 && j.seed < all[i-1].seed {
			t.Fatalf("seed %d after seed %d", j.seed, all[i-1].seed)
		}
	}
}

func TestEstimateIsStudents(t *testing.T) {
	e := estimate([]float64{1, 2, 3})
	if half := 4.303 / math.Sqrt(3); e.Mean != 2 || math.Abs(e.High-2-half) > 1e-9 || math.Abs(2-e.Low-half) > 1e-9 {
		t.Errorf("%+v", e)
	}
	if one := estimate([]float64{5}); one != (Estimate{5, 5, 5}) {
		t.Errorf("of one seed: %+v", one)
	}
}

func TestVerdicts(t *testing.T) {
	value := func(c Curves) float64 { return c[0][0].Y }
	seeds := func(ys ...float64) (all []Curves) {
		for _, y := range ys {
			all = append(all, Curves{{{1, y}}})
		}
		return all
	}
	for name, c := range map[string]struct {
		claim  Claim
		seeds  []Curves
		want   Verdict
		reason string
	}{
		"within":            {between("", 1, 2, value), seeds(2), Holds, ""},
		"above":             {between("", 1, 2, value).because("x"), seeds(2.1), DoesNot, "x"},
		"at least":          {atLeast("", 1, value), seeds(1), Holds, ""},
		"not at most":       {atMost("", 1, value), seeds(2), DoesNot, ""},
		"near the bound":    {atLeast("", 1.9, value), seeds(1, 2, 3), Holds, "the bound is within the confidence interval"},
		"far from it":       {atLeast("", -9, value), seeds(1, 2, 3), Holds, ""},
		"too few seeds":     {atLeast("", 1, value).over(5), seeds(9), Unknown, "other seeds differ by more: it takes 5 of them"},
		"nobody knows":      {unknown("", "lost"), seeds(1), Unknown, "lost"},
		"observed":          {observed("", "lost", value), seeds(1), Unknown, "lost"},
		"the model says it": {byModel("", "same"), seeds(1), Holds, "same"},
		"not a number":      {atLeast("", 1, value), seeds(math.NaN()), DoesNot, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.claim.judge(c.seeds)
			if f.Verdict != c.want || f.Reason != c.reason {
				t.Errorf("%s because %q, want %s because %q", f.Verdict, f.Reason, c.want, c.reason)
			}
			if f.Found != nil && math.IsNaN(f.Found.Mean) {
				t.Error("found what is not a number, which JSON has no word for")
			}
		})
	}
	if v := sum([]Finding{{Verdict: Holds}, {Verdict: Unknown}}); v != Holds {
		t.Errorf("what can be known holds: %s", v)
	}
	if v := sum([]Finding{{Verdict: Holds}, {Verdict: DoesNot}}); v != DoesNot {
		t.Errorf("something does not hold: %s", v)
	}
}

func named(t *testing.T, names ...string) (figures []Figure) {
	t.Helper()
	for _, f := range Figures() {
		if slices.Contains(names, f.Name) {
			figures = append(figures, f)
		}
	}
	return figures
}

// TestQuickFiguresHold runs those that take little, on both clocks.
func TestQuickFiguresHold(t *testing.T) {
	for _, clock := range Clocks {
		r, err := Run(context.Background(), named(t, "fig25", "fig25-finite", "fig44", "fig45"), Options{Clock: clock, Seeds: 2, Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []Verdict{DoesNot, Holds, Holds, Holds} {
			if f := r.Figures[i]; f.Verdict != want || f.Seeds != 2 {
				t.Errorf("%s, %s: %s, want %s: %+v", clock, f.Figure, f.Verdict, want, f.Findings)
			}
		}
	}
}

// TestAnInterruptedRunKeepsWhatItHas: the first figure is whole, the other not.
func TestAnInterruptedRunKeepsWhatItHas(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	figures := named(t, "fig44", "fig8")
	slices.Reverse(figures)
	o := Options{Clock: Scale, Seeds: 1, Workers: 1, Progress: func(done, _ int) {
		if done == len(jobs(figures[:1], 1)) {
			stop()
		}
	}}
	r, err := Run(ctx, figures, o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || r.Figures[0].Verdict != Holds || r.Figures[1].Verdict != Unsettled || len(r.Figures[1].Curves) != 0 {
		t.Errorf("interrupted %v; %s, %s with %d curves", r.Interrupted, r.Figures[0].Verdict, r.Figures[1].Verdict, len(r.Figures[1].Curves))
	}
}

// TestHierarchyHasTwoLevels: each balancer's servers get the same.
func TestHierarchyHasTwoLevels(t *testing.T) {
	s := levels(throughput)[0].at[0].setup.offered(2000) // one client: nothing collides
	s.PerPacket, s.Seconds = true, 1
	r, err := s.Run(context.Background(), Compat, 1)
	if err != nil {
		t.Fatal(err)
	}
	by := r.Seconds[0].ReceivedBy // servers 1 to 8, and the second balancer
	if len(by) != 9 || by[0] < 490 || math.Abs(by[0]-by[8]) > 2 || math.Abs(by[3]*5-by[8]) > 10 {
		t.Errorf("received by server: %v", by)
	}
}
