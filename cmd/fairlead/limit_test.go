package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/limit"
)

// TestItemsAreBounded reads a file, and standard input, that are too long.
func TestItemsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, limit.Text+1); err != nil { // takes no space on disk
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, from := range map[string]string{path: path, "standard input": "-"} {
		_, err := readItems([]string{from}, file)
		var long *limit.TooLong
		if !errors.As(err, &long) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, want one that names it and the limit", name, err)
		}
	}
}
