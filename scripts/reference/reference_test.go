// Package reference generates the pages of docs/reference that describe files and types of
// this repository. Each test compares its page, or writes it with -update.
package reference

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pages")

const repository = "../.."

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// compare compares a page with what it must be.
func compare(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(repository, "docs/reference", name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): go test ./scripts/reference -update", path, err)
	}
}

// row is a row of a table.
func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// header begins a table.
func header(cells ...string) string {
	return row(cells...) + "|" + strings.Repeat("---|", len(cells)) + "\n"
}

var escaper = strings.NewReplacer("|", "\\|", "<", "&lt;", "{", "&#123;")

// prose makes a text fit for a cell, except what is in backticks.
func prose(s string) string {
	parts := strings.Split(strings.Join(strings.Fields(s), " "), "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = escaper.Replace(parts[i])
	}
	return strings.Join(parts, "`")
}

// code quotes a value.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(s, "|", "\\|") + "`"
}

// TestIndex: the index links every page in its folder.
func TestIndex(t *testing.T) {
	index := string(read(t, "docs/reference/index.md"))
	pages, _ := filepath.Glob(filepath.Join(repository, "docs/reference/*.md"))
	if len(pages) < 2 {
		t.Fatal("no pages")
	}
	for _, p := range pages {
		if name := filepath.Base(p); name != "index.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/reference/index.md does not link %s", name)
		}
	}
}
