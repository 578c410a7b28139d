package demo_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/lab/bench/calibrate"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestCalibration checks that the simulator's predictions for the lab are close to the
// lab's results. A busy machine sends less, and detects later that a load balancer is
// gone: the simulator gets the measured values of both.
func TestCalibration(t *testing.T) {
	testkit.WatchSources(t)
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(fixture.Lab(t), "sim", "calibrate", "--balancers", "2", "--duration", "4s", "--rate", "600",
		"--link-rate", "1000000", "--seeds", "3", "--out", filepath.Join(fixture.Ground, "calibrate"), "-o", "json")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	t.Log(stderr.String())
	if err != nil {
		t.Fatal(err)
	}
	testkit.NoLeftovers(t)
	var r calibrate.Result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 3 || r.PacketNs <= 0 || r.LinkBits <= 0 {
		t.Fatalf("%+v: want three cases", r)
	}
	for _, row := range r.Rows {
		t.Logf("%+v", row)
		if off := row.Lost - row.LostPredicted.Median; math.Abs(off) > 15 {
			t.Errorf("%s: %.1f %% were lost, %.1f %% predicted", row.Case, row.Lost, row.LostPredicted.Median)
		}
	}
}
