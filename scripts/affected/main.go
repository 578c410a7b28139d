// Command affected prints the packages whose tests a change affects, nearest first:
//
//	affected [-base COMMIT] [-budget SECONDS] [-durations FILE]
//
// A change is what differs from a commit (default HEAD), including new files. The budget
// bounds the sum of the packages' known durations; packages that do not fit are named on
// standard error.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab/archtest"
	"github.com/fairlead/fairlead/scripts/internal/durations"
)

func main() {
	base := flag.String("base", "HEAD", "`COMMIT` to compare with")
	budget := flag.Float64("budget", 60, "maximum sum of durations, in `SECONDS`; 0 is no limit")
	file := flag.String("durations", "scripts/testrun/durations.txt", "`FILE` with the seconds that packages take")
	flag.Parse()
	if err := run(*base, *budget, *file); err != nil {
		fmt.Fprintln(os.Stderr, "affected:", err)
		os.Exit(1)
	}
}

func run(base string, budget float64, file string) error {
	files, err := changedFiles(base)
	if err != nil {
		return err
	}
	packages, err := archtest.List(".")
	if err != nil {
		return err
	}
	seconds, err := durations.Read(file)
	if err != nil {
		return err
	}
	fit, rest := within(affected(files, packages), seconds, budget)
	for _, p := range fit {
		fmt.Println(p)
	}
	if len(rest) > 0 {
		fmt.Fprintf(os.Stderr, "affected: left for make test: %s\n", strings.Join(rest, " "))
	}
	return nil
}

// changedFiles returns the paths that differ from a commit, new files included.
func changedFiles(base string) ([]string, error) {
	changed, err := git("diff", "--name-only", base)
	if err != nil {
		return nil, err
	}
	added, err := git("ls-files", "--others", "--exclude-standard")
	return append(changed, added...), err
}

func git(args ...string) ([]string, error) {
	out, err := exec.Command("git", args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("git %s: %s", args[0], bytes.TrimSpace(exit.Stderr))
	}
	return strings.Fields(string(out)), err
}

// readers are the packages whose tests read files outside their own folder.
var readers = map[string][]string{
	"docs/":        {"cmd/fairlead", "cmd/fairlead-lab", "cmd/kubectl-fairlead"},
	"README.md":    {"cmd/fairlead", "cmd/fairlead-lab"},
	"deploy/":      {"cmd/fairlead", "lab/archtest"},
	"go.mod":       {"lab/archtest"},
	"bpf/":         {"dataplane/xdp", "dataplane/dsr", "dataplane/proxy", "dataplane/proxy/packet", "vdn/enforce/kernel"},
	"CHANGELOG.md": {"cmd/fairlead"},
}

// affected returns packages by their distance from the change: those that contain a changed
// file or read one, then those that import them, and so on.
func affected(files []string, all []archtest.Package) (order [][]string) {
	known := map[string]bool{}
	importers := map[string][]string{}
	for _, p := range all {
		known[p.Path] = true
		for _, i := range slices.Concat(p.Imports, p.TestImports) {
			importers[i] = append(importers[i], p.Path)
		}
	}
	seen := map[string]bool{}
	var level []string
	add := func(p string) {
		if known[p] && !seen[p] {
			seen[p] = true
			level = append(level, p)
		}
	}
	for _, f := range files {
		add(owner(f, known))
		for prefix, packages := range readers {
			if strings.HasPrefix(f, prefix) {
				for _, p := range packages {
					add(p)
				}
			}
		}
	}
	for len(level) > 0 {
		slices.Sort(level)
		order = append(order, level)
		last := level
		level = nil
		for _, p := range last {
			for _, i := range importers[p] {
				add(i)
			}
		}
	}
	return order
}

// owner returns the package in the folder of a file, or in the nearest one above it.
func owner(file string, known map[string]bool) string {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if known[dir] {
			return dir
		}
	}
	return ""
}

// within returns the packages that fit into a budget of seconds, nearest and fastest first,
// and those that do not.
func within(levels [][]string, seconds map[string]float64, budget float64) (fit, rest []string) {
	sum := 0.0
	for _, level := range levels {
		slices.SortStableFunc(level, func(a, b string) int { return int(seconds[a] - seconds[b]) })
		for _, p := range level {
			took := max(seconds[p], 0.5)
			if budget > 0 && sum+took > budget {
				rest = append(rest, p)
				continue
			}
			sum += took
			fit = append(fit, "./"+p)
		}
	}
	return fit, rest
}
