package xdp

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDropReasonsAreExplained: the table of docs/troubleshooting.md has one row for
// each drop reason, and no others.
func TestDropReasonsAreExplained(t *testing.T) {
	spec, err := config().withDefaults().spec()
	must(t, err)
	want, err := dropReasons(spec)
	must(t, err)
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	must(t, err)
	_, table, found := strings.Cut(string(page), "\n| drop reason | cause | resolution |\n|---|---|---|\n")
	if !found {
		t.Fatal("the page has no table of drop reasons")
	}
	var got []string
	for line := range strings.Lines(table) {
		name, isRow := strings.CutPrefix(line, "| `")
		if !isRow {
			break
		}
		name, _, _ = strings.Cut(name, "` |")
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the table explains\n%q\nthe balancer has\n%q", got, want)
	}
}
