package bpffs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// pin creates a pin; for these tests, a directory is as good as a map.
func pin(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestDirIsHeldByOneAndKeepsItsPins(t *testing.T) {
	path := "/sys/fs/bpf/held"
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrInUse) {
		t.Fatalf("a second Open gave %v", err)
	}
	pin(t, d.Path("link_b"))
	pin(t, d.Path("link_a"))
	pin(t, d.Path("map"))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err = Open(path); err != nil {
		t.Fatalf("Open after Close: %v", err)
	}
	names, err := d.Names("link_")
	if want := []string{"link_a", "link_b"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("Names gave %v, %v; want %v", names, err, want)
	}
	for range 2 {
		if err := d.Remove("link_a"); err != nil {
			t.Errorf("Remove: %v", err)
		}
	}
	if err := d.RemoveAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("RemoveAll left %s: %v", path, err)
	}
}

func TestOpenRefusesAnotherFileSystem(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "pins")); err == nil {
		t.Fatal("Open took a folder that is on no BPF file system")
	}
}
