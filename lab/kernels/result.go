package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Results are those of all kernels, as stored in RESULT.json and docs/kernels.json.
type Results struct {
	Kernels []Kernel `json:"kernels"`
}

// Kernel is the result of one guest.
type Kernel struct {
	Series  string `json:"series"`  // as requested: "6.12", "newest"
	Release string `json:"release"` // what uname -r prints in the guest
	Accel   string `json:"accel"`   // "kvm", or "tcg" for emulation
	Date    string `json:"date"`
	Seconds int    `json:"seconds"` // from building the guest to its end
	// Complete is true if the guest ran all suites to their end.
	Complete bool    `json:"complete"`
	Probes   []Probe `json:"probes,omitempty"`
	Suites   []Suite `json:"suites"`
}

// Probe is the kernel's answer for one feature of internal/features.
type Probe struct {
	Feature string `json:"feature"`
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
}

// Suite is the outcome of the tests of one package. Names are those of tests;
// failed ones include subtests.
type Suite struct {
	Package string    `json:"package"`
	Passed  []string  `json:"passed"`
	Failed  []string  `json:"failed,omitempty"`
	Skipped []Skipped `json:"skipped,omitempty"`
	// SkippedSubtests counts subtests that skipped themselves.
	SkippedSubtests int `json:"skippedSubtests,omitempty"`
	// Problem is any other failure: the test binary crashed, the guest ended.
	Problem string `json:"problem,omitempty"`
}

// Skipped is a test that skipped itself, and why.
type Skipped struct {
	Test   string `json:"test"`
	Reason string `json:"reason,omitempty"`
}

// Failed reports whether anything in the guest went wrong.
func (k Kernel) Failed() bool {
	return !k.Complete || !slices.ContainsFunc(k.Suites, func(s Suite) bool { return len(s.Passed) > 0 }) ||
		slices.ContainsFunc(k.Suites, func(s Suite) bool { return len(s.Failed) > 0 || s.Problem != "" })
}

var (
	// In verbose output for test2json, such lines begin with a control character.
	outcomeLine = regexp.MustCompile(`^\x16? *--- (PASS|FAIL|SKIP): (\S+) \(`)
	runLine     = regexp.MustCompile(`^\x16?=== RUN +(\S+)`)
	logLine     = regexp.MustCompile(`^ +\S+\.go:\d+: (.*)$`)
	probesLine  = regexp.MustCompile(`^\s*(?:\S+\.go:\d+: )?probes: (\[.*\])$`)
	crashLine   = regexp.MustCompile(`^(panic: |fatal error: |SIG[A-Z]+: )`)
)

// parser reads a guest's console.
type parser struct {
	kernel  *Kernel
	suite   *Suite // nil between suites
	running map[string]bool
	said    string // the last line that a test logged
}

// parse adds to k what a guest printed.
func parse(k *Kernel, console io.Reader) error {
	p := parser{kernel: k}
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if err := p.line(strings.TrimRight(lines.Text(), "\r")); err != nil {
			return err
		}
	}
	p.cut()
	return lines.Err()
}

func (p *parser) line(line string) error {
	if event, ok := strings.CutPrefix(line, "guest: "); ok {
		p.event(event)
		return nil
	}
	if p.suite == nil {
		return nil
	}
	if m := probesLine.FindStringSubmatch(line); m != nil {
		if err := json.Unmarshal([]byte(m[1]), &p.kernel.Probes); err != nil {
			return fmt.Errorf("probes: %w", err)
		}
	} else if m := runLine.FindStringSubmatch(line); m != nil {
		p.running[m[1]], p.said = true, ""
	} else if m := outcomeLine.FindStringSubmatch(line); m != nil {
		p.outcome(m[1], m[2])
	} else if m := logLine.FindStringSubmatch(line); m != nil {
		p.said = m[1]
	} else if crashLine.MatchString(line) && p.suite.Problem == "" {
		p.suite.Problem = line
	}
	return nil
}

func (p *parser) event(event string) {
	words := strings.Fields(event)
	switch {
	case words[0] == "kernel" && len(words) == 2:
		p.kernel.Release = words[1]
	case words[0] == "suite" && len(words) == 2:
		p.end("the test binary did not end")
		p.suite, p.running = &Suite{Package: words[1], Passed: []string{}}, map[string]bool{}
	case words[0] == "end" && len(words) == 4:
		problem := ""
		if words[3] != "0" && len(p.suite.Failed) == 0 {
			problem = "the test binary exited with status " + words[3]
		}
		p.end(problem)
	case words[0] == "done":
		p.kernel.Complete = true
	}
}

func (p *parser) outcome(word, test string) {
	delete(p.running, test)
	sub := strings.Contains(test, "/")
	switch {
	case word == "FAIL":
		p.suite.Failed = append(p.suite.Failed, test)
	case word == "SKIP" && sub:
		p.suite.SkippedSubtests++
	case word == "SKIP":
		p.suite.Skipped = append(p.suite.Skipped, Skipped{Test: test, Reason: p.said})
	case !sub:
		p.suite.Passed = append(p.suite.Passed, test)
	}
	p.said = ""
}

// cut closes a suite during which the guest ended: by its time limit, or because
// its kernel crashed.
func (p *parser) cut() {
	during := slices.Sorted(maps.Keys(p.running))
	p.running = nil
	p.end("the guest ended during " + cmp.Or(strings.Join(during, " "), "this package"))
}

// end closes the current suite, if there is one. A test that did not end failed.
func (p *parser) end(problem string) {
	if p.suite == nil {
		return
	}
	if p.suite.Problem == "" {
		p.suite.Problem = problem
	}
	for test := range p.running {
		p.suite.Failed = append(p.suite.Failed, test)
	}
	slices.Sort(p.suite.Failed)
	slices.Sort(p.suite.Passed)
	p.kernel.Suites = append(p.kernel.Suites, *p.suite)
	p.suite = nil
}

// read loads results; a file that does not exist has none.
func read(path string) (Results, error) {
	var r Results
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// merged is k with the earlier results of the same kernel for packages that k
// does not have.
func (r Results) merged(k Kernel) Kernel {
	i := slices.IndexFunc(r.Kernels, func(o Kernel) bool { return o.Series == k.Series && o.Release == k.Release })
	if i < 0 {
		k.Complete = false
		return k
	}
	old := r.Kernels[i]
	for _, s := range old.Suites {
		if !slices.ContainsFunc(k.Suites, func(o Suite) bool { return o.Package == s.Package }) {
			k.Suites = append(k.Suites, s)
		}
	}
	if k.Probes == nil {
		k.Probes = old.Probes
	}
	k.Seconds += old.Seconds
	for _, s := range suites {
		i := slices.IndexFunc(k.Suites, func(o Suite) bool { return o.Package == s.Package })
		k.Complete = k.Complete && i >= 0 && k.Suites[i].Problem == ""
	}
	return k
}

// put replaces the results of the same series, or adds them, in the order of the
// kernels' versions.
func (r *Results) put(k Kernel) {
	i := slices.IndexFunc(r.Kernels, func(o Kernel) bool { return o.Series == k.Series })
	if i < 0 {
		r.Kernels = append(r.Kernels, k)
	} else {
		r.Kernels[i] = k
	}
	slices.SortStableFunc(r.Kernels, func(a, b Kernel) int { return slices.Compare(version(a.Release), version(b.Release)) })
}

// version is the numbers that a release begins with: 6, 12, 117.
func version(release string) (numbers []int) {
	for _, word := range strings.FieldsFunc(release, func(r rune) bool { return r < '0' || r > '9' }) {
		n, err := strconv.Atoi(word)
		if err != nil {
			break
		}
		numbers = append(numbers, n)
	}
	return numbers
}

func (r Results) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// leftOut records the selected tests that a run left out as skipped.
func (k *Kernel) leftOut(expression string) error {
	if expression == "" {
		return nil
	}
	re, err := regexp.Compile("^(" + expression + ")$")
	if err != nil {
		return err
	}
	for i := range k.Suites {
		s := &k.Suites[i]
		j := slices.IndexFunc(suites, func(o suite) bool { return o.Package == s.Package })
		if j < 0 {
			continue
		}
		for _, name := range strings.Split(suites[j].Emulated, "|") {
			if name != "" && re.MatchString(name) {
				s.Skipped = append(s.Skipped, Skipped{Test: name, Reason: "left out: too slow in this guest"})
			}
		}
	}
	return nil
}

// summary is one line per package, and the names of failed tests.
func summary(k Kernel) string {
	var b strings.Builder
	for _, s := range k.Suites {
		fmt.Fprintf(&b, "test-kernels: %s: %s: %s\n", k.Release, s.Package, k.outcome(s.Package))
		for _, t := range s.Failed {
			fmt.Fprintf(&b, "test-kernels: %s: %s: failed: %s\n", k.Release, s.Package, t)
		}
		if s.Problem != "" {
			fmt.Fprintf(&b, "test-kernels: %s: %s: %s\n", k.Release, s.Package, s.Problem)
		}
	}
	return b.String()
}
