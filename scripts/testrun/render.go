package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const maxSkips = 20 // more lines are less useful

func (r *report) printf(format string, args ...any) {
	fmt.Fprintf(r.out, format, args...)
	r.printed = time.Now()
}

// packageLine prints the only line about a package while others are running.
func (r *report) packageLine(e *event, p *packageRun, name string) {
	verdict, took := "ok", fmt.Sprintf("%.1f s", e.Elapsed)
	switch {
	case e.Action == "fail":
		verdict = "FAIL"
	case e.Action == "skip":
		verdict, took = "-", "no tests"
	case p.cached:
		took = "cached"
	}
	width := len(fmt.Sprint(r.total))
	r.printf("[%*d/%d] %-4s %9s  %s\n", width, r.done, r.total, verdict, took, name)
}

// stillRunning prints the slow packages if nothing else has been printed.
func (r *report) stillRunning(now time.Time) {
	if len(r.running) == 0 || now.Sub(r.printed) < silence {
		return
	}
	var running []string
	for _, path := range slices.Sorted(maps.Keys(r.running)) {
		running = append(running, fmt.Sprintf("%s (%.0f s)", short(path, r.module), now.Sub(r.running[path].began).Seconds()))
	}
	r.printf("running: %s\n", strings.Join(running, ", "))
}

// end prints what failed, then the counts: the last line.
func (r *report) end(took time.Duration, code int) {
	r.unfinished()
	if len(r.skips) > 0 {
		slices.Sort(r.skips)
		r.printf("\nSkipped:\n")
		for _, s := range r.skips[:min(len(r.skips), maxSkips)] {
			r.printf("  %s\n", s)
		}
		if more := len(r.skips) - maxSkips; more > 0 {
			r.printf("  and %d more\n", more)
		}
	}
	for _, f := range r.failures {
		r.printf("\nFAIL %s", f.pkg)
		if f.test != "" {
			r.printf(" %s", f.test)
		}
		if f.note != "" {
			r.printf(": %s", f.note)
		}
		if f.seconds > 0 {
			r.printf(" (%.1f s)", f.seconds)
		}
		r.printf("\n%s", indent(f.output))
	}
	if len(r.failedPackage) > 0 {
		slices.Sort(r.failedPackage)
		r.printf("\nFailed packages:\n%s", indent(r.failedPackage))
	}
	if code == interrupted {
		r.printf("\nInterrupted.\n")
	}
	if code != 0 && r.results[failed] == 0 {
		r.results[failed]++ // go test itself: its message is on stderr
	}
	r.printf("\n")
	if r.logName != "" {
		r.printf("All output: %s\n", r.logName)
	}
	r.printf("%d of %d packages in %s\n", r.done, r.total, took.Round(time.Second))
	r.printf("%d passed, %d failed, %d skipped\n", r.results[passed], r.results[failed], r.results[skipped])
}

// unfinished counts the results of packages without a final event when go test ended,
// because it was killed.
func (r *report) unfinished() {
	for _, path := range slices.Sorted(maps.Keys(r.running)) {
		p := r.running[path]
		r.packageFailed(&event{Package: path}, p, short(path, r.module))
		for i, n := range p.results {
			r.results[i] += n
		}
	}
}

func indent(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(strings.TrimRight("  "+l, " ") + "\n")
	}
	return b.String()
}
