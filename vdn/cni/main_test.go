package cni

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// programs returns a directory with both plugins and cnitool. What they store below
// /var/lib stays in the sandbox.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := built()
	must(t, err)
	testkit.WatchSources(t)
	return dir
}

var built = sync.OnceValues(func() (string, error) {
	if err := unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, ""); err != nil {
		return "", err
	}
	dir := filepath.Join(os.TempDir(), "cni")
	for _, path := range []string{
		"github.com/fairlead/fairlead/cmd/fairlead-cni", "github.com/fairlead/fairlead/cmd/fairlead-ipam", "github.com/containernetworking/cni/cnitool",
	} {
		if err := testkit.BuildPackage(filepath.Join(dir, filepath.Base(path)), path); err != nil {
			return "", err
		}
	}
	return dir, nil
})
