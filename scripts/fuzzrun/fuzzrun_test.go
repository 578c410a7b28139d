package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module writes a module with one target that passes, one that searches by itself, and
// one that fails on an input that only fuzzing finds.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.test/m\n\ngo 1.24\n",
		"good/good_test.go": `package good
import "testing"
func FuzzGood(f *testing.F) {
	f.Add("a")
	f.Fuzz(func(t *testing.T, s string) {})
}
`,
		"good/search_test.go": `package good
import ("fmt"; "os"; "testing"; "time")
func TestFuzzSearch(t *testing.T) {
	d, err := time.ParseDuration(os.Getenv("FAIRLEAD_FUZZ_TIME"))
	if err != nil {
		t.Skip()
	}
	time.Sleep(d / 10)
	fmt.Println("fuzz: elapsed: 0s, execs: 70123 (1/sec), new interesting: 3 (total: 9)")
}
`,
		"bad/bad.go": "package bad\n",
		"bad/bad_test.go": `package bad_test
import "testing"
func FuzzBad(f *testing.F) {
	f.Add(byte(0))
	f.Fuzz(func(t *testing.T, b byte) {
		if b != 0 {
			t.Error("b is not 0")
		}
	})
}
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRun(t *testing.T) {
	dir := module(t)
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "") // -mod of the outer module does not apply
	var out strings.Builder
	err := run(context.Background(), []string{"-time", "6s"}, &out)
	if err == nil || !strings.Contains(err.Error(), "failed: example.test/m/bad.FuzzBad") || strings.Contains(err.Error(), "good") {
		t.Errorf("error %v, want only FuzzBad", err)
	}
	for _, want := range []string{
		"fuzz: 3 targets, 2s each", "fuzz: [1/3] example.test/m/bad.FuzzBad", "FAIL example.test/m/bad.FuzzBad: ", "b is not 0",
		"ok   example.test/m/good.FuzzGood: ", "ok   example.test/m/good.TestFuzzSearch: 70123 executions, 3 new", "fuzz: 3 targets, 1 failed: ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
	kept, _ := filepath.Glob(filepath.Join(dir, "bad/testdata/fuzz/FuzzBad/*"))
	if len(kept) != 1 {
		t.Errorf("%d failing inputs were saved, want 1", len(kept))
	}
}

func TestChoice(t *testing.T) {
	t.Chdir(module(t))
	t.Setenv("GOFLAGS", "")
	for _, args := range [][]string{{"-run", "Nothing"}, {"-time", "1ns"}, {"-run", "("}, {"./absent"}} {
		if err := run(context.Background(), args, &strings.Builder{}); err == nil {
			t.Errorf("%q passes", args)
		}
	}
}

func TestRead(t *testing.T) {
	const output = `fuzz: elapsed: 0s, gathering baseline coverage: 0/4 completed
fuzz: elapsed: 3s, execs: 100 (33/sec), new interesting: 5 (total: 9)
fuzz: elapsed: 4s, execs: 3931 (0/sec), new interesting: 7 (total: 11)
PASS
`
	if got, want := read(output), (counts{3931, 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	over := "--- FAIL: FuzzX (1.00s)\n    context deadline exceeded\nFAIL\n"
	if !outOfTime(over) || outOfTime(over+"    Failing input written to testdata/fuzz/FuzzX/1\n") || outOfTime("--- FAIL: FuzzX\n") {
		t.Error("a timeout is not distinguished from a failure")
	}
}

// An interrupt ends the run and everything that it started.
func TestInterrupt(t *testing.T) {
	t.Chdir(module(t))
	t.Setenv("GOFLAGS", "")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err := run(ctx, []string{"-time", "10m", "-run", "Good"}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error %v, want an interrupt", err)
	}
}
