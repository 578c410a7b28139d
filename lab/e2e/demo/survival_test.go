package demo_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestSurvival runs a small and short survival experiment: with the second chance nothing
// breaks, and without it enough breaks to show that the experiment works.
func TestSurvival(t *testing.T) {
	testkit.WatchSources(t)
	out := filepath.Join(fixture.Ground, "survival")
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(fixture.Lab(t), "bench", "survival", "--connections", "500", "--connection-consistency", "second-chance,hash-only", "--fullnat=false",
		"--events", "add-server,all-at-once", "--settle", "1s", "--timeout", "8s", "--out", out, "-o", "json")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	t.Log(stderr.String())
	if err != nil {
		t.Error(err)
	}
	testkit.NoLeftovers(t)

	type row struct {
		Case     string
		Measured float64
		Unit     string
		Goal     *float64
		Met      *bool
	}
	var report struct {
		Name string
		Rows []row
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("stdout is not a JSON object: %v: %q", err, stdout.String())
	}
	rows := map[string]row{}
	for _, r := range report.Rows {
		rows[r.Case] = r
	}
	for _, event := range []string{"add-server", "all-at-once", "all events"} {
		kept, lost := rows["second-chance: "+event], rows["hash-only: "+event]
		if kept.Unit == "" || kept.Measured > 0 || kept.Goal == nil || *kept.Goal != 0 || kept.Met == nil || !*kept.Met {
			t.Errorf("second-chance, %s: %+v", event, kept)
		}
		// A ninth backend gets a ninth of the slots: some 55 connections.
		if lost.Measured < 20 || lost.Goal != nil {
			t.Errorf("hash-only, %s: %+v", event, lost)
		}
	}
	written, err := os.ReadFile(filepath.Join(out, "survival.json"))
	if err != nil || !bytes.Equal(bytes.TrimSpace(written), bytes.TrimSpace(stdout.Bytes())) {
		t.Errorf("the file and what is printed differ: %v", err)
	}
	if page, err := os.ReadFile(filepath.Join(out, "survival.html")); err != nil || !bytes.Contains(page, []byte("Broken connections")) {
		t.Errorf("the page: %v", err)
	}
}
