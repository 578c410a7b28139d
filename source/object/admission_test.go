package object

import (
	"flag"
	"maps"
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the rules of the chart")

// TestAdmissionPolicy checks that the chart has the rules, and that there is one for each
// annotation. Package controller tests them in a real API server.
func TestAdmissionPolicy(t *testing.T) {
	known := append(Annotations(), AnnotationBackendTimestamps)
	slices.Sort(known)
	if has := slices.Sorted(maps.Keys(admissible)); !slices.Equal(known, has) {
		t.Errorf("rules for %q, annotations %q", has, known)
	}
	for file, policy := range map[string]Admission{"admission.yaml": AdmissionPolicy(), "admission-slices.yaml": SliceAdmissionPolicy()} {
		file = "../../deploy/helm/fairlead/files/" + file
		want, err := yaml.Marshal(policy)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Errorf("%s is out of date (%v): go test ./source/object -run TestAdmissionPolicy -update; then make manifests", file, err)
		}
	}
}
