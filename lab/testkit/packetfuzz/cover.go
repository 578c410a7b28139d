package packetfuzz

import (
	"fmt"
	"slices"
	"strings"
)

// uncovered lists the lines of C at which a block begins that has never run, with the
// programs in which it has not run, for people.
func uncovered(blocks []Block, covered []byte) string {
	never := map[string][]string{}
	ran := map[string]bool{}
	for i, b := range blocks {
		if covered[i] != 0 {
			ran[b.Source] = true
		} else if !slices.Contains(never[b.Source], b.Program) {
			never[b.Source] = append(never[b.Source], b.Program)
		}
	}
	var lines []string
	for source, programs := range never {
		note := ""
		if ran[source] {
			note = " (in part)"
		}
		lines = append(lines, fmt.Sprintf("%s%s: %s\n", source, note, strings.Join(programs, ", ")))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
