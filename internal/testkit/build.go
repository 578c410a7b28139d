package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/checkout"
)

// Build builds fairlead from this checkout, for tests that run it.
func Build(to string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-o", to, "./cmd/fairlead")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building fairlead (the sandbox has no network: go mod download first): %w\n%s", err, out)
	}
	return nil
}

// WatchSources makes go test see that what Build makes depends on the whole
// module: it takes an old answer only where what a test has opened is as it was.
func WatchSources(t testing.TB) {
	t.Helper()
	root, err := checkout.Root()
	if err == nil {
		err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if d.IsDir() && slices.Contains([]string{".git", "bin", "out"}, d.Name()) {
				return filepath.SkipDir
			}
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}
