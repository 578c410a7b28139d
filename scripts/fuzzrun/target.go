package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is one fuzz function.
type target struct {
	pkg, dir, name string
	// test means that it is an ordinary test, TestFuzzX, which searches by itself for as
	// long as FAIRLEAD_FUZZ_TIME says, and reports like a fuzz function.
	test bool
}

func (t target) String() string { return t.pkg + "." + t.name }

var declaration = regexp.MustCompile(`(?m)^func (?:(Fuzz\w*)\(\w+ \*testing\.F\)|(TestFuzz\w*)\(\w+ \*testing\.T\))`)

// find returns the targets of packages, based on their test files: listing them with go
// test would build every test of the module.
func find(ctx context.Context, packages []string, wanted *regexp.Regexp) (all []target, err error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles"}, packages...)...)
	list.Stderr = os.Stderr
	listed, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p struct {
			Dir, ImportPath           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			for _, m := range declaration.FindAllSubmatch(text, -1) {
				t := target{pkg: p.ImportPath, dir: p.Dir, name: string(m[1]) + string(m[2]), test: len(m[2]) > 0}
				if wanted.MatchString(t.String()) {
					all = append(all, t)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b target) int { return cmp.Compare(a.String(), b.String()) })
	return all, nil
}

// counts are the statistics that go test prints.
type counts struct{ execs, interesting int }

func (c *counts) add(o counts) {
	c.execs += o.execs
	c.interesting += o.interesting
}

func (c counts) String() string {
	return fmt.Sprintf("%d executions, %d new interesting inputs", c.execs, c.interesting)
}

// result is the result of one target.
type result struct {
	counts
	took   time.Duration // including the build
	output string
	err    error
}

// killAfter is how long to wait for go test's output after an interrupt.
const killAfter = 10 * time.Second

// fuzz runs one target for a time. Minimizing an input may take a tenth of it: by
// default, go test takes up to a minute for each.
func fuzz(ctx context.Context, t target, share time.Duration) result {
	args := []string{"-run", "^$", "-fuzz", "^" + t.name + "$", "-fuzztime", share.String(), "-fuzzminimizetime", (share / 10).String()}
	if t.test {
		args = []string{"-run", "^" + t.name + "$", "-count=1", "-v"}
	}
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-timeout", (share + time.Minute).String()}, args, []string{"."})...)
	cmd.Dir, cmd.Env = t.dir, append(os.Environ(), "FAIRLEAD_FUZZ_TIME="+share.String())
	// In a separate process group: go test does not pass signals on to the fuzzer.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = killAfter
	start := time.Now()
	output, err := cmd.CombinedOutput()
	r := result{took: time.Since(start), output: string(output), counts: read(string(output))}
	if err != nil && !outOfTime(r.output) {
		r.err = err
	}
	return r
}

var (
	progress = regexp.MustCompile(`(?m)^fuzz: elapsed: .*, execs: (\d+) .*$`)
	found    = regexp.MustCompile(`new interesting: (\d+)`)
)

// read returns the counts in the last progress line. While go test still runs the known
// inputs, its lines do not count new ones.
func read(output string) (c counts) {
	for _, m := range progress.FindAllStringSubmatch(output, -1) {
		c.execs, _ = strconv.Atoi(m[1])
		if n := found.FindStringSubmatch(m[0]); n != nil {
			c.interesting, _ = strconv.Atoi(n[1])
		}
	}
	return c
}

// outOfTime reports whether go test failed only because its time was up: until Go 1.27,
// the end of -fuzztime may be reported as a failure (https://go.dev/issue/75804).
func outOfTime(output string) bool {
	return strings.Contains(output, "\n    context deadline exceeded\n") &&
		!strings.Contains(output, "Failing input written to") && !strings.Contains(output, "panic:")
}
