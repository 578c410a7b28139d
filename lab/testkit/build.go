package testkit

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/checkout"
)

// Build builds fairlead from this checkout and writes a copy to a path, for tests that
// run it. It is linked once for all packages, and cached in out/test.
func Build(to string) error { return BuildPackage(to, "github.com/fairlead/fairlead/cmd/fairlead") }

// BuildLab is Build for fairlead-lab, which runs the fairlead next to it.
func BuildLab(to string) error {
	return BuildPackage(to, "github.com/fairlead/fairlead/cmd/fairlead-lab")
}

// BuildPackage is Build for the main package at an import path, in this module or a
// dependency.
func BuildPackage(to, path string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	kept := filepath.Join(root, "out/test", filepath.Base(path))
	for _, file := range []string{kept, to} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
	}
	one, err := lock(filepath.Dir(kept), unix.LOCK_EX) // packages are tested concurrently
	if err != nil {
		return err
	}
	defer one.Close()
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", kept, path)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s (the sandbox has no network: go mod download first): %w\n%s", path, err, out)
	}
	return copyProgram(kept, to)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		_ = out.Close() // return the first error
		return err
	}
	return out.Close()
}

// WatchSources makes go test aware that the output of Build depends on the whole module:
// go test uses a cached result only if all files that a test has opened are unchanged.
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
