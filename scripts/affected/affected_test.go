package main

import (
	"slices"
	"strings"
	"testing"
)

var module = []pkg{
	{path: "core/plan"}, {path: "reconciler", imports: []string{"core/plan"}}, {path: "agent", imports: []string{"reconciler"}},
	{path: "cmd/fairlead", imports: []string{"agent"}}, {path: "cmd/fairlead-lab"}, {path: "cmd/kubectl-fairlead"}, {path: "vdn"},
}

func TestAffected(t *testing.T) {
	for files, want := range map[string]string{
		"core/plan/plan.go":                       "core/plan|reconciler|agent|cmd/fairlead",
		"core/plan/testdata/deep/a.yaml":          "core/plan|reconciler|agent|cmd/fairlead",
		"vdn/a.go vdn/b.go":                       "vdn",
		"docs/bgp.md":                             "cmd/fairlead cmd/fairlead-lab cmd/kubectl-fairlead",
		"agent/a.go core/plan/b.go":               "agent core/plan|cmd/fairlead reconciler",
		"LICENSE unknown/folder/file.go mkdocs.y": "",
	} {
		var levels []string
		for _, l := range affected(strings.Fields(files), module) {
			levels = append(levels, strings.Join(l, " "))
		}
		if got := strings.Join(levels, "|"); got != want {
			t.Errorf("%s: %q, want %q", files, got, want)
		}
	}
}

func TestWithin(t *testing.T) {
	seconds, err := readDurations("# seconds\n40 slow\n5 near\n\n10 far\n")
	if err != nil {
		t.Fatal(err)
	}
	fit, rest := within([][]string{{"slow", "near"}, {"far", "quick"}}, seconds, 20)
	if !slices.Equal(fit, []string{"./near", "./quick", "./far"}) || !slices.Equal(rest, []string{"slow"}) {
		t.Errorf("%q, %q", fit, rest)
	}
	if fit, rest := within([][]string{{"slow"}}, seconds, 0); len(fit) != 1 || rest != nil {
		t.Errorf("without a limit %q, %q", fit, rest)
	}
	if _, err := readDurations("fast core\n"); err == nil {
		t.Error("a wrong line passes")
	}
}

// TestThisModule: the packages of this module are found, and the tables name only those.
func TestThisModule(t *testing.T) {
	t.Chdir("../..")
	all, err := listPackages()
	if err != nil {
		t.Fatal(err)
	}
	exists := func(path string) bool { return slices.ContainsFunc(all, func(p pkg) bool { return p.path == path }) }
	for _, packages := range readers {
		for _, p := range packages {
			if !exists(p) {
				t.Errorf("no package %s", p)
			}
		}
	}
	if levels := affected([]string{"core/plan/plan.go"}, all); len(levels) < 3 || !slices.Contains(levels[1], "reconciler") {
		t.Errorf("core/plan affects %v", levels)
	}
}
