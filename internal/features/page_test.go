package features_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/internal/features"
)

var update = flag.Bool("update", false, "write the page again")

const page = "../../docs/kernel-features.md"

// TestPage compares the documentation with the table.
func TestPage(t *testing.T) {
	want := pageText()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the table gives (go test ./internal/features -update):\n%s", page, diff)
	}
}

// pageText fills in testdata/page.md, where {optional} and {essential} stand for the rows.
func pageText() string {
	frame, err := os.ReadFile("testdata/page.md")
	if err != nil {
		return err.Error()
	}
	var optional, essential strings.Builder
	for _, f := range features.Table {
		if f.Essential {
			fmt.Fprintf(&essential, "| `%s` | %s | %s | %s |\n", f.Name, components(f), f.Requires(), f.Since)
		} else {
			fmt.Fprintf(&optional, "| `%s` | %s | %s | %s | %s |\n", f.Name, components(f), f.Requires(), f.Since, f.Without)
		}
	}
	return strings.NewReplacer("{optional}\n", optional.String(), "{essential}\n", essential.String()).Replace(string(frame))
}

func components(f features.Feature) string {
	var names []string
	for _, c := range f.Components {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}
