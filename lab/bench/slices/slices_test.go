package slices

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestSliceUnderAttack measures a small uplink, or with FAIRLEAD_FULL=1 the paper's.
func TestSliceUnderAttack(t *testing.T) {
	o := Options{Uplink: 50_000_000, Guarantee: 40_000_000, Phase: 4 * time.Second}
	if os.Getenv("FAIRLEAD_FULL") != "" {
		o = Options{}
	}
	var last Result
	testkit.Eventually(t, 2*time.Minute, func() (err error) {
		if last, err = SliceUnderAttack(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return check(last)
	})
	for _, s := range last.Seconds {
		t.Logf("%5.1f s %-14s %7.1f %7.1f Mbit/s", s.At, s.Phase, s.Guaranteed/1e6, s.Attacker/1e6)
	}
	testkit.NoLeftovers(t)
}

// check requires 95 % of the guarantee. Rates apply to frames: 1448 of 1514 bytes are TCP
// payload.
func check(r Result) error {
	const payload = 1448.0 / 1514
	alone, _ := r.Of(Alone)
	attacked, _ := r.Of(Attacked)
	_, attacker := r.Of(AttackerAlone)
	for what, got := range map[string][2]float64{
		"alone": {alone, float64(r.Uplink)}, "attacked": {attacked, float64(r.Guarantee)}, "the attacker alone": {attacker, float64(r.Uplink)},
	} {
		if got[0] < 0.95*payload*got[1] {
			return fmt.Errorf("%s gets %s of %s", what, vdn.Rate(got[0]), vdn.Rate(got[1]))
		}
	}
	return nil
}
