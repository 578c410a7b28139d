package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
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
	return testkit.Build(binary)
}
