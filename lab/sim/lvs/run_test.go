package lvs

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/lab/sim/verdict"
)

func TestEveryFigureIsThere(t *testing.T) {
	variants := map[int][]string{8: {"-queues"}, 25: {"-finite"}, 27: {"-direct"}, 29: {"-queues"}, 44: {"-1000m"}, 45: {"-1000m"}}
	want := []string{"text-200-servers", "text-first-loss", "text-round-trip"}
	for n := 8; n <= 45; n++ {
		if n != 21 && n != 26 { // drawings
			want = append(want, fmt.Sprint("fig", n))
		}
		for _, v := range variants[n] {
			want = append(want, fmt.Sprint("fig", n, v))
		}
	}
	var got []string
	for _, f := range Figures() {
		got = append(got, f.Name)
		if len(f.Claims) == 0 || len(f.Series) == 0 || f.Title == "" {
			t.Errorf("%s text or shows nothing", f.Name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("figures are %v", got)
	}
}

// flat returns results in which nothing ever happens.
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

// TestClaimsLookAtPointsThatAreThere checks that claims only use existing points, even if
// no packet moves. Then some of the paper's claims must not hold.
func TestClaimsLookAtPointsThatAreThere(t *testing.T) {
	figures := Figures()
	o := Options{Clock: Compat, Seeds: 2}
	r := report(figures, o, flat(jobs(figures, o)))
	wrong := 0
	for _, f := range r.Figures {
		if f.Seeds != 2 || len(f.Curves) == 0 {
			t.Errorf("%s has %d seeds and %d curves", f.Figure, f.Seeds, len(f.Curves))
		}
		if len(f.Conditions) == 0 {
			t.Errorf("%s does not say what was run", f.Figure)
		}
		if f.Verdict == verdict.DoesNot {
			wrong++
		}
	}
	if wrong < 20 || r.Interrupted {
		t.Errorf("of a dead network %d figures do not hold, interrupted %v", wrong, r.Interrupted)
	}
}

func TestEachRunIsMadeOnce(t *testing.T) {
	all := jobs(Figures(), Options{Seeds: 2})
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

// TestConditions checks what the report says of runs that share or differ in parameters.
func TestConditions(t *testing.T) {
	for name, want := range map[string][]string{
		"fig41": {
			"NAT: topology 2, LAN of 1000 Mbit/s, dsr-nat, rr, 1 server, 10 to 120 clients, a request every 1 ms, queues of 100 packets, 2 seconds",
			"TUN: topology 2, LAN of 1000 Mbit/s, tunnel, rr, 1 server, 10 to 120 clients, a request every 1 ms, queues of 50 packets, 2 seconds",
			"DR: topology 2, LAN of 1000 Mbit/s, dr, rr, 1 server, 10 to 120 clients, a request every 1 ms, queues of 50 packets, 2 seconds",
		},
		"fig42": {
			"RR, server 1, RR, server 2: topology 1, LAN of 1000 Mbit/s, dsr-nat, rr, 2 servers, 100 clients, a request every 1 ms, queues of 10,000 (load balancer), 50 and 150 packets, weights 1 and 3, each request a new connection, 5 seconds",
			"WRR, server 1, WRR, server 2: topology 1, LAN of 1000 Mbit/s, dsr-nat, wrr, 2 servers, 100 clients, a request every 1 ms, queues of 10,000 (load balancer), 50 and 150 packets, weights 1 and 3, each request a new connection, 5 seconds",
		},
	} {
		if got := named(t, name)[0].conditions(); !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestPaperDigits runs the numbers of the paper's text, which agree to the microsecond.
func TestPaperDigits(t *testing.T) {
	for _, f := range named(t, "text-200-servers", "text-first-loss", "text-round-trip") {
		r, err := Run(t.Context(), []Figure{f}, Options{Clock: Compat, Seeds: 1, Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Figures[0]; got.Verdict != verdict.Holds {
			t.Errorf("%s: %s: %+v", f.Name, got.Verdict, got.Findings)
		}
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

// TestQuickFiguresHold runs the figures that take little time, with both clocks.
func TestQuickFiguresHold(t *testing.T) {
	for _, clock := range Clocks {
		r, err := Run(context.Background(), named(t, "fig25", "fig25-finite", "fig44", "fig45"), Options{Clock: clock, Seeds: 2, Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []verdict.Verdict{verdict.DoesNot, verdict.Holds, verdict.Holds, verdict.Holds} {
			if f := r.Figures[i]; f.Verdict != want || f.Seeds != 2 {
				t.Errorf("%s, %s: %s, want %s: %+v", clock, f.Figure, f.Verdict, want, f.Findings)
			}
		}
	}
}

// TestAnInterruptedRunKeepsWhatItHas checks that the first figure is complete, and the
// other is not.
func TestAnInterruptedRunKeepsWhatItHas(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	figures := named(t, "fig44", "fig8")
	slices.Reverse(figures)
	o := Options{Clock: Scale, Seeds: 1, Workers: 1, Progress: func(done, _ int) {
		if done == len(jobs(figures[:1], Options{Seeds: 1})) {
			stop()
		}
	}}
	r, err := Run(ctx, figures, o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || r.Figures[0].Verdict != verdict.Holds || r.Figures[1].Verdict != verdict.Unsettled || len(r.Figures[1].Curves) != 0 {
		t.Errorf("interrupted %v; %s, %s with %d curves", r.Interrupted, r.Figures[0].Verdict, r.Figures[1].Verdict, len(r.Figures[1].Curves))
	}
}

// TestHierarchyHasTwoLevels checks that each load balancer spreads requests evenly over
// its servers.
func TestHierarchyHasTwoLevels(t *testing.T) {
	s := levels(stated, throughput)[0].at[0].setup.offered(2000) // one client, so that nothing collides
	s.PerPacket, s.Seconds = true, 1
	r, err := s.Run(context.Background(), Compat, 1)
	if err != nil {
		t.Fatal(err)
	}
	by := r.Seconds[0].ReceivedBy // servers 1 to 8, and the second load balancer
	if len(by) != 9 || by[0] < 490 || math.Abs(by[0]-by[8]) > 2 || math.Abs(by[3]*5-by[8]) > 10 {
		t.Errorf("received by server: %v", by)
	}
}

// TestSkip checks that repetitions with different seeds are those of one longer run, except
// where the paper's seed is fixed.
func TestSkip(t *testing.T) {
	var figures []Figure
	for _, f := range Figures() {
		if f.Name == "fig25" || f.Name == "text-200-servers" {
			figures = append(figures, f)
		}
	}
	run := func(skip, seeds int) *Report {
		r, err := Run(t.Context(), figures, Options{Clock: Compat, Skip: skip, Seeds: seeds, Workers: 2})
		if err != nil || r.Interrupted {
			t.Fatal(err, r)
		}
		return r
	}
	both, first, second := run(0, 2), run(0, 1), run(1, 1)
	differ := false
	for i, f := range both.Figures {
		for k, c := range f.Curves {
			for n, p := range c.Points {
				a, b := first.Figures[i].Curves[k].Points[n].Mean, second.Figures[i].Curves[k].Points[n].Mean
				differ = differ || a != b
				if math.Abs(p.Mean-(a+b)/2) > 1e-9*math.Abs(p.Mean) {
					t.Errorf("%s, %s, at %g: %g is not the mean of %g and %g", f.Figure, c.Name, p.X, p.Mean, a, b)
				}
			}
		}
	}
	if !differ {
		t.Error("other seeds have the same results")
	}
}
