package ipvsbench

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.MainIPVS(m) }

// All rows of the table are measured, and iptables stops at its time limit.
func TestMeasure(t *testing.T) {
	o := Options{Sizes: []int{1, 20, 40}, Runs: 3, IPTables: time.Minute, Progress: io.Discard}
	measure := func() (cases []string, r *bench.Report) {
		t.Helper()
		r, err := Measure(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			cases = append(cases, row.Case)
			if row.Measured <= 0 {
				t.Errorf("%s took no time", row.Case)
			}
		}
		return cases, r
	}
	cases, r := measure()
	for _, want := range []string{
		"fairlead, one more among 40", "netlink calls only, one more among 40", "restart over 40",
		"iptables, all of 40 at once (from 20)", "iptables, one more among 40",
	} {
		if !slices.Contains(cases, want) {
			t.Errorf("%q is missing among %q", want, cases)
		}
	}
	if first := r.Rows[0]; first.Goal == nil || first.PeerMeasured == nil || first.Runs != o.Runs {
		t.Errorf("the first row has no goal, peer or runs: %+v", first)
	}
	o.IPTables = 0
	cases, r = measure()
	if slices.Contains(cases, "iptables, one more among 20") || !strings.Contains(strings.Join(r.Notes, "\n"), "cut off: 1 services took") {
		t.Errorf("iptables was not cut off, or no note says so: %q, %q", cases, r.Notes)
	}
}

// A service has eight rules, as in the published table.
func TestRulesAreOfKubeProxysForm(t *testing.T) {
	if n := strings.Count(rules(1, 2), "\n-A "); n != 8 {
		t.Errorf("%d rules, want 8:\n%s", n, rules(1, 2))
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--sizes":    func(o *Options) { o.Sizes = []int{5, 1} },
		"--runs":     func(o *Options) { o.Runs = 0 },
		"--iptables": func(o *Options) { o.IPTables = -1 },
	} {
		o := DefaultOptions()
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one about %s", err, want)
		}
	}
}
