package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/archtest"
)

var module = []archtest.Package{
	{Path: "core/plan"}, {Path: "reconciler", Imports: []string{"core/plan"}}, {Path: "agent", TestImports: []string{"reconciler"}},
	{Path: "cmd/fairlead", Imports: []string{"agent"}}, {Path: "cmd/fairlead-lab"}, {Path: "cmd/kubectl-fairlead"}, {Path: "vdn"},
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
	seconds := map[string]float64{"slow": 40, "near": 5, "far": 10}
	fit, rest := within([][]string{{"slow", "near"}, {"far", "quick"}}, seconds, 20)
	if !slices.Equal(fit, []string{"./near", "./quick", "./far"}) || !slices.Equal(rest, []string{"slow"}) {
		t.Errorf("%q, %q", fit, rest)
	}
	if fit, rest := within([][]string{{"slow"}}, seconds, 0); len(fit) != 1 || rest != nil {
		t.Errorf("without a limit %q, %q", fit, rest)
	}
}

// TestThisModule: the packages of this module are found, and the tables name only those.
func TestThisModule(t *testing.T) {
	all, err := archtest.List("../..")
	if err != nil {
		t.Fatal(err)
	}
	exists := func(path string) bool {
		return slices.ContainsFunc(all, func(p archtest.Package) bool { return p.Path == path })
	}
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
