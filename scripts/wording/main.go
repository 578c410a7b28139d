// Command wording finds retired words in the repository:
//
//	wording [PATH...]
//
// It reads comments, string literals and identifiers of Go and C, and all of Markdown,
// YAML and shell. Retired senses are matched by phrase, so that correct uses of the same
// words pass; words.go lists them with what to say instead. The exit status is 1 if a word
// is found.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	found, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "wording:", err)
		os.Exit(2)
	}
	for _, f := range found {
		fmt.Println(f)
	}
	if len(found) > 0 {
		fmt.Fprintf(os.Stderr, "wording: %d retired words\n", len(found))
		os.Exit(1)
	}
}

// run returns the findings in the tracked files below paths, or in all.
func run(paths []string) ([]finding, error) {
	out, err := exec.Command("git", append([]string{"ls-files", "--"}, paths...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var found []finding
	for _, path := range strings.Fields(string(out)) {
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			continue // deleted and not committed yet, or a link to a folder
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found = append(found, check(path, src)...)
	}
	return found, nil
}
