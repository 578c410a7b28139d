// Command wording finds retired words in the repository:
//
//	wording [-all] [PATH...]
//
// It reads comments, string literals and identifiers of Go and C, and all of Markdown,
// YAML and shell. Retired senses are matched by phrase, so that correct uses of the same
// words pass; words.go lists them with what to say instead. Paths in todo.txt are not
// clean yet and are skipped without -all. The exit status is 1 if a word is found.
package main

import (
	"bufio"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strings"
)

//go:embed todo.txt
var todo string

func main() {
	all := flag.Bool("all", false, "also read what todo.txt lists")
	counts := flag.Bool("counts", false, "print the number of findings per folder instead")
	flag.Parse()
	found, err := run(*all, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "wording:", err)
		os.Exit(2)
	}
	w := bufio.NewWriter(os.Stdout)
	if *counts {
		printCounts(w, found)
	} else {
		for _, f := range found {
			fmt.Fprintln(w, f)
		}
	}
	w.Flush()
	if len(found) > 0 {
		fmt.Fprintf(os.Stderr, "wording: %d retired words\n", len(found))
		os.Exit(1)
	}
}

// run returns the findings in the tracked files below paths, all where none are given.
func run(all bool, paths []string) ([]finding, error) {
	out, err := exec.Command("git", append([]string{"ls-files", "--"}, paths...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var found []finding
	for _, path := range strings.Fields(string(out)) {
		if !all && skipped(path, todo) {
			continue
		}
		src, err := os.ReadFile(path)
		if info, statErr := os.Stat(path); statErr != nil || info.IsDir() {
			continue // deleted and not committed yet, or a link to a folder
		}
		if err != nil {
			return nil, err
		}
		found = append(found, check(path, src)...)
	}
	return found, nil
}

// skipped reports whether a line of list is path, or a folder above it.
func skipped(path, list string) bool {
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if path == line || strings.HasSuffix(line, "/") && strings.HasPrefix(path, line) {
			return true
		}
	}
	return false
}

func printCounts(w *bufio.Writer, found []finding) {
	byFolder := map[string]int{}
	for _, f := range found {
		parts := strings.Split(f.path, "/")
		if len(parts) > 3 {
			parts = parts[:3]
		}
		byFolder[strings.Join(parts[:max(1, len(parts)-1)], "/")]++
	}
	folders := make([]string, 0, len(byFolder))
	for f := range byFolder {
		folders = append(folders, f)
	}
	sort.Strings(folders)
	for _, f := range folders {
		fmt.Fprintf(w, "%6d %s\n", byFolder[f], f)
	}
}
