package standby

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestBoth measures each way once. ECMP carries more, and flows continue before the link is
// back.
func TestBoth(t *testing.T) {
	o := DefaultOptions()
	o.Binary, o.Balancers, o.Rate, o.Rounds, o.Window, o.Progress = filepath.Join(t.TempDir(), "fairlead"), 2, 5, 1, 2*time.Second, t.Output()
	if err := testkit.Build(o.Binary); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, row := range r.Rows {
		got[row.Case] = row.Measured
	}
	if one, all := got[Standby+": throughput"], got[ECMP+": throughput"]; one < 1 || one > 7 || all < 1.3*one {
		t.Errorf("%g Mbit/s through one, %g through all", one, all)
	}
	for _, way := range []string{Standby, ECMP} {
		if gap := got[way+": longest interruption of a flow"]; gap == 0 || gap >= float64(outage.Milliseconds()) {
			t.Errorf("%s: %g ms", way, gap)
		}
	}
	testkit.NoLeftovers(t)
}
