package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/scripts/internal/durations"
)

var update = flag.Bool("update", false, "write the golden files")

// TestMain lets the tests start this program: the test binary acts as testrun if
// BE_TESTRUN is set.
func TestMain(m *testing.M) {
	if os.Getenv("BE_TESTRUN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// Each file of testdata was written by a real go test -json, without times and stack
// frames of the standard library.
func TestRecorded(t *testing.T) {
	recordings, err := filepath.Glob("testdata/*.json")
	if err != nil || len(recordings) < 5 {
		t.Fatal(recordings, err)
	}
	closing := regexp.MustCompile(`\n\d+ passed, \d+ failed, \d+ skipped\n$`)
	for _, recording := range recordings {
		t.Run(strings.TrimSuffix(filepath.Base(recording), ".json"), func(t *testing.T) {
			in, err := os.Open(recording)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			var out bytes.Buffer
			r := newReport(&out, "example.com/m", 3)
			if err := r.follow(in); err != nil {
				t.Fatal(err)
			}
			r.end(90*time.Second, 1)
			if !closing.Match(out.Bytes()) {
				t.Error("the last line contains no counts")
			}
			golden := strings.TrimSuffix(recording, ".json") + ".txt"
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != string(want) {
				t.Errorf("want:\n%s\ngot:\n%s", want, &out)
			}
		})
	}
}

func TestCutOff(t *testing.T) { // killed: events stop anywhere
	recorded, err := os.ReadFile("testdata/timeout.json")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(recorded, []byte("\n"))
	var out bytes.Buffer
	r := newReport(&out, "example.com/m", 1)
	if err := r.follow(bytes.NewReader(bytes.Join(lines[:len(lines)-3], nil))); err != nil {
		t.Fatal(err)
	}
	r.end(time.Second, interrupted)
	for _, want := range []string{"slow TestHangs/deep: did not finish", "\nInterrupted.\n", "0 of 1 packages in 1s\n1 passed, 2 failed, 0 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

func TestVerboseAndLog(t *testing.T) {
	in, err := os.Open("testdata/mixed.json")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out, log bytes.Buffer
	r := newReport(&out, "example.com/m", 3)
	r.verbose, r.log = true, &log
	if err := r.follow(in); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"output": out.String(), "log": log.String()} {
		if !strings.Contains(text, "good:     a_test.go:3: quiet\n") {
			t.Errorf("%s does not contain the log of a passed test:\n%s", name, text)
		}
	}
}

func TestBounded(t *testing.T) {
	var o output
	for i := range 1000 {
		o.add(fmt.Sprintf("line %d\n", i))
	}
	o.add("no ")
	o.add("end")
	got := o.lines()
	if n := headLines + 1 + tailLines; len(got) != n || got[0] != "line 0" || got[n-1] != "no end" || !strings.Contains(got[headLines], " 881 lines omitted") {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

func TestOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "durations.txt")
	if err := writeDurations(file, map[string]float64{"lab": 20, "kube/chain": 90, "gone": 7}); err != nil {
		t.Fatal(err)
	}
	known, err := durations.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	packages := []string{"m/a", "m/kube/chain", "m", "m/lab", "m/kube"}
	for want, waits := range map[string]func(string) bool{
		"m/kube/chain m/lab m m/a m/kube": func(string) bool { return false },
		"m/lab m m/a m/kube/chain m/kube": regexp.MustCompile("/kube").MatchString,
	} {
		order(packages, "m", known, waits)
		if got := strings.Join(packages, " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	now := merge(known, map[string]float64{"lab": 4, "a": 12, "b": 1})
	if want := map[string]float64{"a": 12, "kube/chain": 90, "gone": 7}; !maps.Equal(now, want) {
		t.Errorf("got %v, want %v", now, want)
	}
}

// scratch is a module with real tests to run.
func scratch(t *testing.T, files map[string]string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.com/scratch\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GOFLAGS=") }), "BE_TESTRUN=1", "GOFLAGS=", "GOWORK=off")
	return cmd
}

const twoTests = `package p

import "testing"

func TestShort(t *testing.T) {}

func TestLong(t *testing.T) { t.Fatal("too long") }
`

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		code  int
		want  string
	}{
		{"fails", nil, 1, "1 passed, 1 failed, 0 skipped\n"},
		{"skip", []string{"-skip", "^TestLong$|^TestOther$"}, 0, "1 passed, 0 failed, 0 skipped\n"},
		{"no such flag", []string{"-timeout", "soon"}, 2, "0 passed, 1 failed, 0 skipped\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := scratch(t, map[string]string{"p/p_test.go": twoTests, "none/none.go": "package none\n"})
			cmd.Args = slices.Concat(cmd.Args, []string{"-log", "out/test.log", "./...", "--"}, c.flags)
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.HasSuffix(string(out), c.want) {
				t.Errorf("exit code %d, want %d (%v):\n%s", code, c.code, err, out)
			}
			if _, err := os.Stat(filepath.Join(cmd.Dir, "out/test.log")); err != nil {
				t.Error(err)
			}
		})
	}
}

const waits = `package p

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestWaits(t *testing.T) {
	if err := os.WriteFile("pid.new", fmt.Append(nil, os.Getpid()), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Rename("pid.new", "pid")
	time.Sleep(time.Hour)
}
`

// An interrupt ends go test and the tests that it runs, wherever the signal is sent.
func TestInterrupt(t *testing.T) {
	cmd := scratch(t, map[string]string{"p_test.go": waits})
	cmd.Args = append(cmd.Args, ".")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	pid := 0
	for deadline := time.Now().Add(2 * time.Minute); pid == 0; time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(filepath.Join(cmd.Dir, "pid")); err == nil {
			if pid, err = strconv.Atoi(string(text)); err != nil {
				t.Fatal(err)
			}
		} else if time.Now().After(deadline) {
			t.Fatal("the test never begins: ", err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // its exit code is checked below
	if code := cmd.ProcessState.ExitCode(); code != interrupted || !strings.Contains(out.String(), "\nInterrupted.\n") {
		t.Errorf("exit code %d:\n%s", code, &out)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the test still runs: %v", err)
	}
}
