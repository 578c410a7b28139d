package world

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Ground is a file system of the sandbox that the demo's sandbox, which has another /run,
// can see too.
const Ground = "/mnt"

// Binary is the fairlead under test, built once; in a guest, the one outside that
// BinaryVariable names.
var Binary = cmp.Or(os.Getenv(BinaryVariable), filepath.Join(Ground, "fairlead"))

// BinaryVariable is the environment variable with its path in a guest.
const BinaryVariable = "FAIRLEAD_E2E_BINARY"

// Main is testkit.Main for tests that run the binary:
//
//	func TestMain(m *testing.M) { world.Main(m) }
func Main(m *testing.M) {
	if sandbox.Inside("test") && os.Getenv(BinaryVariable) == "" {
		if err := link(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testkit.Main(m)
}

// Lab returns the path of fairlead-lab, next to the Binary.
func Lab(t testing.TB) string {
	t.Helper()
	path := filepath.Join(Ground, "fairlead-lab")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := testkit.BuildLab(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func link() error {
	if err := unix.Mount("tmpfs", Ground, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount on %s: %w", Ground, err)
	}
	return testkit.Build(Binary)
}
