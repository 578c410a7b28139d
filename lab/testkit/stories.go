package testkit

import (
	"path/filepath"
	"strings"
	"testing"
)

// Stories runs each txtar archive in testdata as a subtest.
func Stories(t *testing.T, run func(t *testing.T, path string)) {
	t.Helper()
	stories, _ := filepath.Glob("testdata/*.txtar")
	if len(stories) == 0 {
		t.Fatal("no stories")
	}
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { run(t, path) })
	}
}
