package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// TestThisModuleKeepsItsWalls checks the import rules for every package.
func TestThisModuleKeepsItsWalls(t *testing.T) {
	packages, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(packages, func(p Package) bool { return p.Path == "core/service" }) {
		t.Fatalf("the list of %d packages lacks core/service: nothing would be checked", len(packages))
	}
	for _, b := range Breaches(packages) {
		t.Error(b)
	}
}

// TestInstalledIsWhatTheMakefileInstalls checks that the rule covers the programs that
// users get, and that the image contains no others.
func TestInstalledIsWhatTheMakefileInstalls(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	words := func(name string) (paths []string) {
		for line := range strings.Lines(string(makefile)) {
			if variable, value, ok := strings.Cut(line, ":="); ok && strings.TrimSpace(variable) == name {
				for _, program := range strings.Fields(value) {
					paths = append(paths, "cmd/"+program)
				}
			}
		}
		return paths
	}
	if got := words("INSTALLED"); !slices.Equal(got, installed) {
		t.Errorf("INSTALLED is %v, the rule is for %v", got, installed)
	}
	image := words("IN_IMAGE")
	if len(image) == 0 {
		t.Error("the image contains no program")
	}
	for _, program := range image {
		if !slices.Contains(installed, program) {
			t.Errorf("the image has %s, which users do not install", program)
		}
	}
}

// TestThisModuleIsReadable checks the source rules for every file.
func TestThisModuleIsReadable(t *testing.T) {
	found, err := Faults(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

func TestBreachesAreFound(t *testing.T) {
	got := Breaches([]Package{
		{Path: "std:net"},
		{Path: "std:time"},
		{Path: "std:os"},
		{Path: "github.com/osrg/gobgp/v4/pkg/server", Imports: []string{"std:net"}},
		{Path: "advertise/bgp", Imports: []string{"github.com/osrg/gobgp/v4/pkg/server", "std:net"}},
		{Path: "advertise/bgp/internal/engine", Imports: []string{"github.com/osrg/gobgp/v4/pkg/packet/bgp"}},
		{Path: "advertise/bgpish", Imports: []string{"github.com/osrg/gobgp/v4/pkg/packet/bgp"}},
		{Path: "advertise", Imports: []string{"std:time"}, TestImports: []string{"github.com/cilium/ebpf"}},
		{Path: "helper", Imports: []string{"std:net"}},
		{Path: "core/plan", Imports: []string{"helper", "std:os"}},
		{Path: "core/service", Imports: []string{"std:time", "std:net/netip"}, TestImports: []string{"std:net"}},
		{Path: "reconciler", Imports: []string{"cmd/fairlead", "std:net"}},
		{Path: "lab", Imports: []string{"lab/testkit/refuse"}, TestImports: []string{"lab/testkit/refuse"}},
		{Path: "router", TestImports: []string{"lab/testkit/refuse"}},
		{Path: "lab/testkit/refuse/cmd/refuse", Imports: []string{"lab/testkit/refuse"}},
		{Path: "lab/sim", Imports: []string{"core/schedule"}, TestImports: []string{"core/maglev"}},
		{Path: "lab/sim/lvs", Imports: []string{"core/maglev"}},
		{Path: "dataplane/ipvs", TestImports: []string{"core/schedule", "core/maglev"}},
		{Path: "cmd/fairlead-cni", Imports: []string{"helper"}, TestImports: []string{"lab"}},
		{Path: "cmd/fairlead-ipam", Imports: []string{"charts"}},
		{Path: "cmd/fairlead-lab", Imports: []string{"lab", "charts"}},
		{Path: "charts", Imports: []string{"gonum.org/v1/plot", "lab"}},
	})
	want := []string{
		"advertise imports github.com/cilium/ebpf, which only dataplane/xdp, dataplane/dsr, dataplane/proxy, ",
		"advertise/bgp imports github.com/osrg/gobgp/v4/pkg/server, which only itself may: ",
		"advertise/bgpish imports github.com/osrg/gobgp/v4/pkg/packet/bgp, which only advertise/bgp may: ",
		"cmd/fairlead-ipam is installed, but reaches gonum.org/v1/plot by cmd/fairlead-ipam -> charts -> gonum.org/v1/plot: ",
		"cmd/fairlead-ipam is installed, but reaches lab by cmd/fairlead-ipam -> charts -> lab: ",
		"cmd/fairlead-ipam is installed, but reaches lab/testkit/refuse by cmd/fairlead-ipam -> charts -> lab -> lab/testkit/refuse: ",
		"core/plan is pure, but imports os: ",
		"core/plan is pure, but reaches net by core/plan -> helper -> net: ",
		"dataplane/ipvs imports github.com/fairlead/fairlead/core/maglev, which only core/ring, lab/sim may: ",
		"lab imports lab/testkit/refuse, which only tests may: ",
		"lab/sim does not import core/ring: ",
		"reconciler imports github.com/fairlead/fairlead/cmd/fairlead, which only cmd may: ",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestDecodeRecognizesOwnPackages(t *testing.T) {
	got, err := decode(strings.NewReader(`
{"ImportPath": "net", "Standard": true}
{"ImportPath": "vendor/golang.org/x/net/dns/dnsmessage", "Standard": true}
{"ImportPath": "example.com/lib", "Imports": ["net"], "TestImports": ["testing"], "Module": {"Main": false}}
{"ImportPath": "github.com/fairlead/fairlead/core/plan", "Imports": ["net", "example.com/lib", "github.com/fairlead/fairlead/core/service"],
 "TestImports": ["testing"], "XTestImports": ["github.com/fairlead/fairlead/lab/testkit"], "Module": {"Main": true}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{
		{Path: "std:net", Imports: []string{}},
		{Path: "std:vendor/golang.org/x/net/dns/dnsmessage", Imports: []string{}},
		{Path: "example.com/lib", Imports: []string{"std:net"}},
		{Path: "core/plan", Imports: []string{"std:net", "example.com/lib", "core/service"}, TestImports: []string{"std:testing", "lab/testkit"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// long is text of n lines.
func long(n int, line string) string { return strings.Repeat(line+"\n", n) }

func TestFaultsAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"core/service/service.go":   "// Package service is the model.\npackage service\n\nimport clock \"time\"\n\nvar now = clock.Now\n",
		"core/service/more.go":      "package service\n\nimport \"time\"\n\nvar d = time.Second\n",
		"core/service/more_test.go": "package service\n\nimport \"time\"\n\nvar later = time.Now()\n",
		"reconciler/reconciler.go":  "// Package reconciler is the loop.\npackage reconciler\n\nimport \"time\"\n\nvar now = time.Now\n",
		"cmd/a.go":                  "// Package cmd is a command.\npackage cmd\n\nfunc help() { root.SetUsageTemplate(text) }\n",
		"twice/a.go":                "// Package twice is one thing.\npackage twice\n",
		"twice/b.go":                "// Package twice is another.\npackage twice\n",
		"never/a.go":                "package never\n",
		"never/testdata/x.go":       "not Go at all",
		"tools/go.mod":              "module tools\n",
		"tools/a.go":                "package tools\n",
		"big/a.go":                  "// Package big is long.\npackage big\n" + long(600, "// more"),
		"big/gen.go":                "// Code generated by bpf2go; DO NOT EDIT.\n\npackage big\n" + long(600, "// more"),
		"big/f.go":                  "package big\n\nfunc long() {\n" + long(59, "\t_ = 0") + "}\n\nfunc short() {\n" + long(58, "\t_ = 0") + "}\n",
		"huge/a.go":                 "// Package huge has many lines.\npackage huge\n" + long(590, "// more"),
		"huge/b.go":                 "package huge\n" + long(599, "// more"),
		"huge/c.go":                 "package huge\n" + long(599, "// more"),
		"huge/d.go":                 "package huge\n" + long(599, "// more"),
		"huge/e.go":                 "package huge\n" + long(599, "// more"),
		"huge/f.go":                 "package huge\n" + long(9, "// more"),
		"big/f_test.go":             "package big\n\nfunc table() {\n" + long(99, "\t_ = 0") + "}\n",
		"cmd/log.go":                "package cmd\n\nfunc log() {\n\tx.Log.With(\"peer\", p).Warn(\"up\", slog.Any(\"error\", e), \"Peer\", p)\n\ttable.Info(\"x\", \"y\")\n}\n",
		"bpf/a.c":                   "static int f(void)\n{\n" + long(59, "\treturn 0;") + "}\n\nstruct s {\n" + long(70, "\tint x;") + "};\n",
		"bpf/b.h":                   long(601, "/* more */"),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Faults(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"big/a.go: 602 lines: ",
		"big/f.go:3: long has 61 lines: ",
		"bpf/a.c:2: static int f(void) has 61 lines: ",
		"bpf/b.h: 601 lines: ",
		"cmd/a.go:4: SetUsageTemplate makes ",
		`cmd/log.go:4: log key "Peer": use one of `,
		"core/service/service.go:6: clock.Now in a pure package: ",
		"huge: 6 files with 3002 lines: ",
		"never: no package comment: ",
		"twice: 2 package comments (twice/a.go, twice/b.go): ",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}
