package upgrade_test

import (
	"cmp"
	"os"
	"testing"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// Environment variables with the fairlead of each version. The default is this
// checkout's.
const (
	previousVariable = "FAIRLEAD_PREVIOUS"
	nextVariable     = "FAIRLEAD_NEXT"
)

func previous() string { return cmp.Or(os.Getenv(previousVariable), fixture.Binary) }
func next() string     { return cmp.Or(os.Getenv(nextVariable), fixture.Binary) }

// needsVersions skips a test if both versions are the same: it takes minutes, and other
// tests cover restarts of the same version.
func needsVersions(t *testing.T) {
	t.Helper()
	if os.Getenv(previousVariable) == "" {
		t.Skip("make test-upgrade FROM=COMMIT runs it")
	}
}
