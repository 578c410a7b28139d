package upgrade_test

import (
	"cmp"
	"os"
	"testing"

	"github.com/fairlead/fairlead/lab/e2e/internal/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// Environment variables that name the fairlead of each version. Where they name
// none it is this checkout's.
const (
	previousVariable = "FAIRLEAD_PREVIOUS"
	nextVariable     = "FAIRLEAD_NEXT"
)

func previous() string { return cmp.Or(os.Getenv(previousVariable), world.Binary) }
func next() string     { return cmp.Or(os.Getenv(nextVariable), world.Binary) }

// needsVersions skips a test where both versions are the same: it takes minutes, and
// other tests restart what there is.
func needsVersions(t *testing.T) {
	t.Helper()
	if os.Getenv(previousVariable) == "" {
		t.Skip("make test-upgrade FROM=COMMIT runs it")
	}
}
