package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json: see go doc test2json and go help buildjson.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}

// failure is a failed test, or a failed package without one, with its output.
type failure struct {
	pkg, test string
	note      string
	seconds   float64
	output    []string
}

// packageRun is a package whose tests are running.
type packageRun struct {
	began   time.Time
	tests   map[string]*output // started but not finished
	output  output             // of the package itself
	cached  bool
	results [3]int
}

// The results that are counted.
const (
	passed = iota
	failed
	skipped
)

type report struct {
	out           io.Writer
	verbose       bool
	log           io.Writer
	logName       string
	module        string
	total, done   int
	running       map[string]*packageRun
	builds        map[string]*output
	results       [3]int
	failures      []failure
	skips         []string
	failedPackage []string
	seconds       map[string]float64 // by package relative to the module, if it passed and was not cached
	printed       time.Time
}

// silence is how long nothing is printed before a line lists what is running.
const silence = time.Minute

func newReport(out io.Writer, module string, total int) *report {
	return &report{
		out: out, module: module, total: total, log: io.Discard,
		running: map[string]*packageRun{}, builds: map[string]*output{}, seconds: map[string]float64{}, printed: time.Now(),
	}
}

// follow reads events until their end.
func (r *report) follow(in io.Reader) error {
	lines, failed := make(chan []byte), make(chan error, 1)
	go func() {
		defer close(lines)
		for buffered := bufio.NewReader(in); ; {
			line, err := buffered.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	ticks := time.NewTicker(silence / 12)
	defer ticks.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				if err := <-failed; !errors.Is(err, io.EOF) {
					return err
				}
				return nil
			}
			r.line(line)
		case now := <-ticks.C:
			r.stillRunning(now)
		}
	}
}

func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		r.printf("%s", line) // not an event: print it unchanged
		return
	}
	switch {
	case e.Action == "build-output":
		r.keep(&e, short(e.ImportPath, r.module))
		b := r.builds[e.ImportPath]
		if b == nil {
			b = &output{}
			r.builds[e.ImportPath] = b
		}
		b.add(e.Output)
	case e.Package == "":
	case e.Test != "":
		r.test(&e, r.pkg(e.Package))
	default:
		r.packageEvent(&e, r.pkg(e.Package))
	}
}

func (r *report) pkg(path string) *packageRun {
	p := r.running[path]
	if p == nil {
		p = &packageRun{began: time.Now(), tests: map[string]*output{}}
		r.running[path] = p
	}
	return p
}

func (r *report) test(e *event, p *packageRun) {
	o := p.tests[e.Test]
	if o == nil {
		o = &output{}
		p.tests[e.Test] = o
	}
	switch e.Action {
	case "output":
		r.keep(e, short(e.Package, r.module))
		o.add(e.Output)
		return
	case "pass":
		p.results[passed]++
	case "fail":
		p.results[failed]++
		r.fail(failure{pkg: short(e.Package, r.module), test: e.Test, seconds: e.Elapsed, output: o.lines()})
	case "skip":
		p.results[skipped]++
		why := ""
		if lines := o.lines(); len(lines) > 0 {
			why = ": " + strings.TrimSpace(lines[len(lines)-1])
		}
		r.skips = append(r.skips, short(e.Package, r.module)+" "+e.Test+why)
	default: // run, pause, cont
		return
	}
	delete(p.tests, e.Test)
}

func (r *report) packageEvent(e *event, p *packageRun) {
	switch e.Action {
	case "output":
		r.keep(e, short(e.Package, r.module))
		p.cached = p.cached || strings.HasPrefix(e.Output, "ok  \t") && strings.Contains(e.Output, "\t(cached)")
		p.output.add(e.Output)
	case "pass", "skip", "fail":
		name := short(e.Package, r.module)
		if e.Action == "fail" {
			r.packageFailed(e, p, name)
		}
		if e.Action == "pass" && !p.cached {
			r.seconds[name] = e.Elapsed
		}
		for i, n := range p.results {
			r.results[i] += n
		}
		delete(r.running, e.Package)
		r.done++
		r.packageLine(e, p, name)
	}
}

// packageFailed determines what made a package fail if no test's event has shown it: a
// build, a panic, a timeout, or TestMain.
func (r *report) packageFailed(e *event, p *packageRun, name string) {
	r.failedPackage = append(r.failedPackage, name)
	for _, test := range slices.Backward(slices.Sorted(maps.Keys(p.tests))) { // subtests first
		p.results[failed]++
		r.fail(failure{pkg: name, test: test, note: "did not finish", output: p.tests[test].lines()})
	}
	switch b := r.builds[e.FailedBuild]; {
	case e.FailedBuild != "":
		p.results[failed]++
		f := failure{pkg: name, note: "build failed"}
		if b != nil {
			f.output = b.lines()
			*b = output{head: []string{"as for " + name}} // once is enough for a package that many import
		}
		r.fail(f)
	case p.results[failed] == 0:
		p.results[failed]++
		r.fail(failure{pkg: name, note: "failed outside of tests", seconds: e.Elapsed, output: p.output.lines()})
	case len(p.output.lines()) > 0:
		r.fail(failure{pkg: name, note: "output outside of tests", seconds: e.Elapsed, output: p.output.lines()})
	}
}

// fail records a failure. A test that failed because of a subtest adds nothing.
func (r *report) fail(f failure) {
	if len(f.output) == 0 && f.test != "" {
		if slices.ContainsFunc(r.failures, func(sub failure) bool {
			return sub.pkg == f.pkg && strings.HasPrefix(sub.test, f.test+"/")
		}) {
			return
		}
	}
	r.failures = append(r.failures, f)
}

// keep writes output to the complete log.
func (r *report) keep(e *event, name string) {
	end := ""
	if !strings.HasSuffix(e.Output, "\n") {
		end = "\n"
	}
	fmt.Fprintf(r.log, "%s: %s%s", name, e.Output, end)
	if r.verbose {
		r.printf("%s: %s%s", name, e.Output, end)
	}
}
