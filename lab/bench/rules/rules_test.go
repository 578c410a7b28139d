package rules_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/benchtest"
	"github.com/fairlead/fairlead/lab/bench/rules"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/uml"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestSmall programs a few Services in each way. Connections verify that they work.
func TestSmall(t *testing.T) {
	small(t, slices.DeleteFunc(slices.Clone(rules.Ways), func(w string) bool { return w == rules.IPVS }), []int{10})
	testkit.NoLeftovers(t)
}

// TestIPVS does the same with IPVS, in a UML guest if this kernel has none.
func TestIPVS(t *testing.T) {
	if uml.HasIPVS() {
		small(t, []string{rules.Linear, rules.IPVS}, []int{0})
		bandwidths(t)
		return
	}
	o := uml.Options{Limit: 4 * time.Minute, Env: append(os.Environ(), "TMPDIR=/tmp")}
	status, err := uml.Run(t.Context(), o, "/proc/1/exe", "-test.run=^TestIPVS$", "-test.v", "-test.timeout=3m30s")
	if err != nil || status != 0 {
		t.Errorf("in the guest: status %d, %v", status, err)
	}
}

func small(t *testing.T, ways []string, batches []int) {
	t.Helper()
	o := rules.DefaultOptions()
	o.Services, o.Ways, o.Adds, o.Connects, o.Progress, o.Batches = []int{1, 300}, ways, 2, 5, os.Stderr, batches
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	report, err := rules.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, r := range report.Rows {
		got[r.Case] = r.Measured > 0
	}
	for _, w := range ways {
		for _, what := range []string{"all written", "one more", "connect to the first", "connect to the middle", "connect to the last"} {
			if name := fmt.Sprintf("%s, 300 Services: %s", w, what); !got[name] {
				t.Errorf("no %q", name)
			}
		}
	}
	for _, what := range []string{"times written", "entries written", "a pod added to in the kernel", "first pod added to all in the kernel"} {
		for _, way := range []string{"not gathered", "gathered for 10ms, 40ms at most", "gathered for 500ms"} {
			if name := fmt.Sprintf("10 pods in 10 Services, %s: %s", way, what); got[name] != (batches[0] > 0) {
				t.Errorf("%q: %v", name, got[name])
			}
		}
	}
}

// bandwidths measures each bandwidth twice.
func bandwidths(t *testing.T) {
	o := rules.DefaultOptions()
	o.Services, o.Ways, o.Endpoints, o.Adds, o.Connects, o.Transfers, o.Progress, o.Batches = []int{1, 50}, []string{rules.Linear, rules.IPVS}, 1, 0, 1, 2, os.Stderr, []int{0}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	report, err := rules.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range o.Ways {
		for _, what := range []string{"one connection to the first", "short connections to the last", "single packets to the last"} {
			name := fmt.Sprintf("%s, 50 Services: %s", way, what)
			if !slices.ContainsFunc(report.Rows, func(r bench.Row) bool { return r.Case == name && r.Measured > 0 && r.Runs == 2 }) {
				t.Errorf("no %q", name)
			}
		}
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	benchtest.Nonsense(t, rules.DefaultOptions, map[string]func(*rules.Options){
		"--services":  func(o *rules.Options) { o.Services = []int{5, 1} },
		"--only":      func(o *rules.Options) { o.Ways = []string{"none"} },
		"--batches":   func(o *rules.Options) { o.Batches = []int{-1} },
		"--window":    func(o *rules.Options) { o.Window = time.Second },
		"--endpoints": func(o *rules.Options) { o.Endpoints = 0 },
		"--transfers": func(o *rules.Options) { o.Transfers = 1 },
		"--limit":     func(o *rules.Options) { o.Limit = time.Millisecond },
	})
}
