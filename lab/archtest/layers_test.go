package archtest

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestImportsPointDownward checks every import between top-level folders against the
// layers.
func TestImportsPointDownward(t *testing.T) {
	packages, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(packages, func(p Package) bool { return p.Path == "core/plan" }) {
		t.Fatalf("the list of %d packages lacks core/plan: nothing would be checked", len(packages))
	}
	for _, f := range slices.Concat(Misplaced(packages, layers), Upward(layers)) {
		t.Error(f)
	}
}

// TestArchitectureNamesEveryLayer checks that the guide has a row for every folder in the
// table.
func TestArchitectureNamesEveryLayer(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if !strings.Contains(string(guide), "\n| `"+l.Folder+"/` |") {
			t.Errorf("the table of ARCHITECTURE.md has no row for %s/", l.Folder)
		}
	}
}

var update = flag.Bool("update", false, "draw docs/layers.svg again")

// TestPicture: docs/layers.svg is drawn from the table.
func TestPicture(t *testing.T) {
	path := filepath.Join(root, "docs/layers.svg")
	want := Picture(layers)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): go test ./lab/archtest -run TestPicture -update", path, err)
	}
	rowOf := map[string]int{}
	for i, row := range levels(layers) {
		for _, l := range row {
			rowOf[l.Folder] = i
		}
	}
	for _, l := range layers {
		for _, m := range l.May {
			if rowOf[m] <= rowOf[l.Folder] {
				t.Errorf("%s is not drawn below %s", m, l.Folder)
			}
		}
	}
}

func TestMisplacedImportsAreFound(t *testing.T) {
	layers := []Layer{{"core", "", nil}, {"dataplane", "", []string{"core"}}, {"lab", "", []string{"core", "dataplane"}}}
	got := Misplaced([]Package{
		{Path: "std:net"},
		{Path: "core/plan", Imports: []string{"core/service", "std:net", "github.com/cilium/ebpf"}},
		{Path: "core/service", TestImports: []string{"lab"}},
		{Path: "core/maglev", Imports: []string{"dataplane"}},
		{Path: "dataplane", Imports: []string{"core/service", "lab/netns"}},
		{Path: "lab/netns", Imports: []string{"dataplane"}},
		{Path: "misc", Imports: []string{"core"}},
	}, layers)
	want := []string{
		"core/maglev imports dataplane, but core may only import core",
		"dataplane imports lab/netns, but dataplane may only import dataplane, core",
		"misc: the layers have no folder misc: ",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	if got := Upward([]Layer{{"core", "", []string{"dataplane"}}, {"dataplane", "", []string{"core"}}}); len(got) != 1 {
		t.Errorf("got %q, want the one way up, from core to dataplane", got)
	}
}
