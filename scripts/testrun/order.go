package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// worthOrdering is how many seconds a package must take to be listed in the file of
// durations: the start order of faster ones makes no difference.
const worthOrdering = 5

const durationsHeader = `# How many seconds packages take, by which make test starts the slowest first.
# make test RECORD=1 updates this file; packages that take less than 5 s are not in it.
`

func writeDurations(name string, seconds map[string]float64) error {
	text := bytes.NewBufferString(durationsHeader)
	for _, p := range slices.SortedFunc(maps.Keys(seconds), slower(seconds)) {
		fmt.Fprintf(text, "%.0f %s\n", seconds[p], p)
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}

// merge replaces the durations of the packages that have run now.
func merge(known, now map[string]float64) map[string]float64 {
	all := maps.Clone(known)
	for p, s := range now {
		if all[p] = s; s < worthOrdering {
			delete(all, p)
		}
	}
	return all
}

func slower(seconds map[string]float64) func(a, b string) int {
	return func(a, b string) int {
		return cmp.Or(cmp.Compare(seconds[b], seconds[a]), strings.Compare(a, b))
	}
}

// order sorts packages by start order: the slowest first, so that no CPU is idle while
// one of them runs alone at the end; last those that have to wait for something.
func order(packages []string, module string, seconds map[string]float64, waits func(string) bool) {
	slices.SortFunc(packages, func(a, b string) int {
		if wa, wb := waits(a), waits(b); wa != wb {
			if wa {
				return 1
			}
			return -1
		}
		return slower(seconds)(short(a, module), short(b, module))
	})
}

// short returns a package's path relative to the module.
func short(path, module string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}
