package demo

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/topology"
)

var update = flag.Bool("update", false, "rewrite the manifests of docs/scenarios/demo")

// TestManifestsForScenarios checks that the manifests with which the documentation
// queries the simulator are those of the demo.
func TestManifestsForScenarios(t *testing.T) {
	n, err := topology.New(topology.Default())
	if err != nil {
		t.Fatal(err)
	}
	m := manifest(Options{Method: string(service.DefaultMethod), Scheduler: string(service.DefaultScheduler)})
	for i, s := range n.Services {
		want, err := m.Text(s, n.Servers(i))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("../../docs/scenarios/demo", s.Name+".yaml")
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what the demo writes (%v): run this test with -update", file, err)
		}
	}
}
