package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// inCode matches a path in backticks: folders end with a slash.
var inCode = regexp.MustCompile("`([a-z][A-Za-z0-9._/-]*/[A-Za-z0-9._-]*)`")

// pages returns the pages that describe the source as it is: not dated results.
func pages(t *testing.T) (paths []string) {
	paths = []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" && !strings.HasPrefix(filepath.Base(path), "2026-") {
			paths = append(paths, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestPathsInThePagesExist: paths that begin with a folder of the repository exist.
// ARCHITECTURE.md also names folders below that of a row.
func TestPathsInThePagesExist(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var top []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "out" && e.Name() != "bin" {
			top = append(top, e.Name())
		}
	}
	checked := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			row, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "/")
			for _, m := range inCode.FindAllStringSubmatch(line, -1) {
				first, _, _ := strings.Cut(m[1], "/")
				switch {
				case slices.Contains(top, first):
					checked++
					if _, err := os.Stat(filepath.Join(root, m[1])); err != nil && !containsPath(row, m[1]) {
						t.Errorf("%s names %s, which does not exist", page, m[1])
					}
				case page == "ARCHITECTURE.md" && strings.HasPrefix(line, "| `") && slices.Contains(top, row):
					checked++
					if !containsPath(row, m[1]) {
						t.Errorf("%s names %s below %s/, where it does not exist", page, m[1], row)
					}
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d paths were found in the pages", checked)
	}
}

// containsPath reports whether a folder has a path that ends with another.
func containsPath(folder, path string) bool {
	found := false
	_ = filepath.WalkDir(filepath.Join(root, folder), func(at string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(at, "/"+strings.TrimSuffix(path, "/")) {
			found = true
			return filepath.SkipAll
		}
		return err
	})
	return found
}
