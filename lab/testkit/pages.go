package testkit

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var quotedName = regexp.MustCompile("`([^`]+)`")

// Explained compares the first column of a table in a documentation page, names in
// backquotes, with the names that the table must explain. header is the table's first
// line.
func Explained(t *testing.T, page, header string, want []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n"+header+"\n")
	if !found {
		t.Fatalf("%s has no table with the header %s", page, header)
	}
	var got []string
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| `") && !strings.HasPrefix(line, "|---") {
			break
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range quotedName.FindAllStringSubmatch(first, -1) {
			got = append(got, m[1])
		}
	}
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%s explains\n%q\nand must explain\n%q", page, got, want)
	}
}
