package e2e

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// ground is a file system of the sandbox's own that the demo's sandbox, which
// has another /run, sees too.
const ground = "/mnt"

// binary is the fairlead that the stories run, built once; in a guest the one
// outside that binaryVariable names.
var binary = cmp.Or(os.Getenv(binaryVariable), filepath.Join(ground, "fairlead"))

const binaryVariable = "FAIRLEAD_E2E_BINARY"

func TestMain(m *testing.M) {
	if sandbox.Inside("test") && os.Getenv(binaryVariable) == "" {
		if err := build(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testkit.Main(m)
}

func build() error {
	if err := unix.Mount("tmpfs", ground, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount on %s: %w", ground, err)
	}
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/fairlead").CombinedOutput(); err != nil {
		return fmt.Errorf("building fairlead (the sandbox has no network: go mod download first): %w\n%s", err, out)
	}
	return nil
}

// watchSources makes go test see that the binary depends on the whole module:
// it takes an old answer only where what a test has opened is as it was.
func watchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if d.IsDir() && slices.Contains([]string{".git", "bin", "out"}, d.Name()) {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
