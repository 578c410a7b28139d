// Package refusals checks what a component does on kernels that reject a feature of the
// table in internal/features. Its rules come from that table, so that a new row is tested
// without further work; lab/testkit/refuse implements the rejection.
//
// By default each component is tested with a few features of different kinds. `make
// test-degraded` tests all of them (FAIRLEAD_REFUSALS=all).
package refusals

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refuse"
)

// Main is testkit.Main for packages that use this one.
func Main(m *testing.M) {
	refuse.Init()
	testkit.Main(m)
}

// Environment of copies of a test binary that run with a rejected feature.
const (
	refused = "FAIRLEAD_REFUSED" // the feature's name
	place   = "FAIRLEAD_PLACE"   // the argument of Essential
	extent  = "FAIRLEAD_REFUSALS"
)

// errnos that kernels, LSMs and seccomp filters return, used in rotation.
var errnos = []string{"EPERM", "EINVAL", "EACCES", "ENOSYS"}

// Tests are the tests that Optional runs, as regular expressions for -test.run.
type Tests struct {
	// Few are quick and run by default, All under FAIRLEAD_REFUSALS=all.
	Few, All string
	// Instead replaces them for features that these tests test themselves.
	Instead map[string]string
}

func (tests Tests) of(feature string) string {
	switch instead, ok := tests.Instead[feature]; {
	case ok:
		return instead
	case os.Getenv(extent) == "all":
		return tests.All
	}
	return tests.Few
}

// Optional runs tests of this test binary, in their own sandbox, with each optional
// feature of a component rejected. They must pass.
func Optional(t *testing.T, c features.Component, tests Tests) {
	if os.Getenv(refused) != "" {
		t.Skip("runs under a refusal itself")
	}
	each(t, c, false, func(t *testing.T, f features.Feature, rules string) {
		run := tests.of(f.Name)
		cmd := refuse.Command(rules, "/proc/self/exe", "-test.run="+run, "-test.count=1", "-test.v")
		cmd.Env = append(outside(), refused+"="+f.Name)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("without %s (%s): %v\n%s", f.Name, rules, err, tail(out))
		}
		if !bytes.Contains(out, []byte("--- PASS")) {
			t.Errorf("without %s no test of %s has run:\n%s", f.Name, run, tail(out))
		}
	})
}

// Attempt runs f in a copy of this process that Essential started, and reports whether
// this is such a copy: the test must then return. at is the argument of Essential.
func Attempt(f func(at string) error) bool {
	if os.Getenv(refused) == "" {
		return false
	}
	fmt.Printf("attempt: %q\n", fmt.Sprint(f(os.Getenv(place))))
	return true
}

// Essential runs the test's Attempt in a copy of this process, in the same sandbox, with
// each essential feature of a component rejected. It must fail with one line that names
// the feature, except for features that it does not reach. still checks that what was
// programmed before still works.
func Essential(t *testing.T, c features.Component, at string, still func(t *testing.T), except ...string) {
	each(t, c, true, func(t *testing.T, f features.Feature, rules string) {
		if slices.Contains(except, f.Name) {
			t.Skip("the attempt does not need it")
		}
		top, _, _ := strings.Cut(t.Name(), "/")
		cmd := refuse.Command(rules, "/proc/self/exe", "-test.run=^"+top+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), refused+"="+f.Name, place+"="+at)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("without %s (%s): %v\n%s", f.Name, rules, err, tail(out))
		}
		_, rest, _ := strings.Cut(string(out), "attempt: \"")
		text, _, _ := strings.Cut(rest, "\"\n")
		_, errno, _ := strings.Cut(rules, "=")
		switch {
		case text == "" || text == "<nil>":
			t.Errorf("without %s (%s) there is no error:\n%s", f.Name, rules, tail(out))
		case !strings.Contains(text, f.Name), strings.Contains(text, `\n`):
			t.Errorf("without %s (%s) the error is not one line that names it: %s", f.Name, rules, text)
		default:
			t.Logf("%s=%s: %s", f.Name, errno, text)
		}
		still(t)
	})
}

// InNamespace runs f in the network namespace at a path.
func InNamespace(path string, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := netns.GetFromPath(path)
		if err == nil {
			defer ns.Close()
			err = netns.Set(ns)
		}
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

// Without reports whether this process runs with a feature rejected.
func Without(feature string) bool { return os.Getenv(refused) == feature }

// each runs f for the essential or the optional features of a component.
func each(t *testing.T, c features.Component, essential bool, f func(*testing.T, features.Feature, string)) {
	kinds := map[string]bool{}
	for i, feature := range features.Table {
		if feature.Essential != essential || !feature.For(c) {
			continue
		}
		kind := feature.Needs[0].Kind
		if os.Getenv(extent) != "all" && essential && kinds[kind] {
			continue // one of each kind
		}
		kinds[kind] = true
		t.Run(feature.Name, func(t *testing.T) {
			for _, n := range feature.Needs {
				f(t, feature, n.Rule()+"="+errnos[i%len(errnos)])
				if os.Getenv(extent) != "all" {
					break
				}
			}
		})
	}
}

// outside is the environment without the mark of this sandbox, so that a copy creates its
// own.
func outside() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "FAIRLEAD_SANDBOX") || strings.HasPrefix(v, "TMPDIR=")
	})
}

// tail is the end of a copy's output.
func tail(out []byte) []byte { return out[max(0, len(out)-4000):] }
