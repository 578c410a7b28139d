package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPage checks that the committed page is the one generated from the committed
// results.
func TestPage(t *testing.T) {
	r, err := read("../../" + docsJSON)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../" + docsPage)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(page(r), string(got)); d != "" {
		t.Errorf("docs/kernels.md is out of date; `go run ./lab/kernels page` writes it (-want +got):\n%s", d)
	}
}

const console = "[    0.5] some driver: hello\r\n" + `guest: kernel 6.1.0-test
guest: suite internal/features
` + "\x16" + `=== RUN   TestPrintProbes
probes: [{"feature":"tcx","ok":false,"reason":"EINVAL","message":"attach: invalid argument"},{"feature":"native-xdp","ok":true}]
` + "\x16" + `--- PASS: TestPrintProbes (0.20s)
PASS

guest: end internal/features status 0
guest: suite router
=== RUN   TestSet
=== RUN   TestSet/v6
    fib_test.go:12: wrong
--- FAIL: TestSet (1.00s)
    --- FAIL: TestSet/v6 (0.50s)
=== RUN   TestLink
    --- SKIP: TestMove/v6 (0.00s)
    fib_test.go:40: no such link
--- SKIP: TestLink (0.00s)
FAIL

guest: end router status 1
guest: suite advertise/l2
=== RUN   TestSegment
panic: oh no

guest: end advertise/l2 status 2
guest: suite dataplane/ipvs
=== RUN   TestMoves
`

func TestParse(t *testing.T) {
	var k Kernel
	if err := parse(&k, strings.NewReader(console)); err != nil {
		t.Fatal(err)
	}
	want := Kernel{
		Release: "6.1.0-test",
		Probes:  []Probe{{Feature: "tcx", Message: "attach: invalid argument"}, {Feature: "native-xdp", OK: true}},
		Suites: []Suite{
			{Package: "internal/features", Passed: []string{"TestPrintProbes"}},
			{
				Package: "router", Passed: []string{}, Failed: []string{"TestSet", "TestSet/v6"},
				Skipped: []Skipped{{Test: "TestLink", Reason: "no such link"}}, SkippedSubtests: 1,
			},
			{Package: "advertise/l2", Passed: []string{}, Failed: []string{"TestSegment"}, Problem: "panic: oh no"},
			{Package: "dataplane/ipvs", Passed: []string{}, Problem: "the guest ended during TestMoves"},
		},
	}
	if d := cmp.Diff(want, k); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !k.Failed() {
		t.Error("an incomplete guest counts as passed")
	}
}

// TestResultsOfASeriesAreReplaced checks that one kernel can be tested again
// without losing the others.
func TestResultsOfASeriesAreReplaced(t *testing.T) {
	var r Results
	r.put(Kernel{Series: "newest", Release: "6.12.3"})
	r.put(Kernel{Series: "6.1", Release: "6.1.0-1"})
	whole := Kernel{Series: "6.1", Release: "6.1.0-2"}
	for _, s := range suites {
		whole.Suites = append(whole.Suites, Suite{Package: s.Package})
	}
	whole.Suites[0].Problem = "the guest ended during this package"
	r.put(whole)
	if len(r.Kernels) != 2 || r.Kernels[0].Release != "6.1.0-2" {
		t.Errorf("%+v", r)
	}
	again := Kernel{Series: "6.1", Release: "6.1.0-2", Complete: true, Suites: []Suite{{Package: suites[0].Package}}}
	if got := r.merged(again); !got.Complete || len(got.Suites) != len(suites) {
		t.Errorf("one package again: %+v", got)
	}
	if other := r.merged(Kernel{Series: "6.1", Release: "6.1.0-3", Complete: true}); other.Complete {
		t.Error("a part of the packages counts as all of them")
	}
}

// TestSuites checks that each listed package exists, that the expressions are
// valid, and that each alternative still names a test there.
func TestSuites(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for _, s := range suites {
		var tests []string
		files, err := os.ReadDir("../../" + s.Package)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join("../..", s.Package, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				tests = append(tests, m[1])
			}
		}
		expressions := []string{s.Emulated}
		for _, e := range s.NotRun {
			expressions = append(expressions, e.Tests)
		}
		for _, name := range strings.Split(strings.Join(expressions, "|"), "|") {
			if name != "" && !regexp.MustCompile(`(?m)^(`+name+`)$`).MatchString(strings.Join(tests, "\n")) {
				t.Errorf("%s has no test %s", s.Package, name)
			}
		}
	}
}
