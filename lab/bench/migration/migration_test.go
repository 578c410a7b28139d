package migration

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestMove moves a service once in each way. With the old pods listed at the new cluster,
// nothing is lost.
func TestMove(t *testing.T) {
	o := DefaultOptions()
	o.Binary, o.Rounds, o.Rate, o.Progress = filepath.Join(t.TempDir(), "fairlead"), 1, 50, t.Output()
	if err := testkit.Build(o.Binary); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	got, answers := map[string]float64{}, map[string]float64{}
	for _, row := range r.Rows {
		got[row.Case] = row.Measured
		if cluster, _, ok := strings.Cut(row.Case, " cluster, second"); ok {
			answers[cluster] += row.Measured
		}
	}
	for _, way := range Ways {
		if got[way+": requests"] < 100 || answers[way+": old"] == 0 || answers[way+": new"] == 0 {
			t.Errorf("%s: %v, %v", way, answers, got)
		}
	}
	if n := got[Apart+": old cluster, second 4"]; n > 0 {
		t.Errorf("the old cluster answers %g requests after its end", n)
	}
	for name, n := range got {
		if n > 0 && strings.HasPrefix(name, Together) && (strings.HasSuffix(name, "failed") || strings.HasSuffix(name, "broken")) {
			t.Errorf("%s: %g", name, n)
		}
	}
	testkit.NoLeftovers(t)
}

func TestPerSecond(t *testing.T) {
	s := makeSite("old", 1)
	bins := make([]load.Bin, 30)
	for i := range bins {
		bins[i].PerServer = map[string]uint32{"old-web1": 1, "old-web2": 1, "new-web1": 9}
	}
	got := perSecond(bins, 1500*time.Millisecond, s)["old"]
	for second, want := range map[int]float64{-2: 10, -1: 20, 0: 20, 1: 10} {
		if got[second] != want {
			t.Errorf("second %d: %g requests, want %g", second, got[second], want)
		}
	}
}
