package dsr

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestOutcomesAreExplained: docs/troubleshooting.md explains every counter of packets at
// backend nodes, and no others.
func TestOutcomesAreExplained(t *testing.T) {
	spec, err := loadServer()
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("server_counter", &enum); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, v := range enum.Values {
		if name, counts := strings.CutPrefix(v.Name, "SERVER_COUNTER_"); counts {
			want = append(want, strings.ReplaceAll(strings.ToLower(name), "_", "-"))
		}
	}
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n| counter | meaning | what to do if it grows unexpectedly |\n|---|---|---|\n")
	if !found {
		t.Fatal("the page has no table of counters")
	}
	var got []string
	for line := range strings.Lines(table) {
		names, isRow := strings.CutPrefix(line, "| `")
		if !isRow {
			break
		}
		names, _, _ = strings.Cut(names, "` |")
		got = append(got, strings.Split(names, "`, `")...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the table explains\n%q\nthe programs count\n%q", got, want)
	}
}
