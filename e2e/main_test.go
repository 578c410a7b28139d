package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// binary is the fairlead that the stories run, built once.
var binary = filepath.Join(sandbox.WorkDir, "bin", "fairlead")

func TestMain(m *testing.M) {
	if sandbox.Inside("test") {
		if out, err := exec.Command("go", "build", "-o", binary, "../cmd/fairlead").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building fairlead (the sandbox has no network: go mod download first): %v\n%s", err, out)
			os.Exit(1)
		}
	}
	testkit.Main(m)
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
