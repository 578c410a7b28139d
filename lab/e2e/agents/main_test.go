package agents_test

import (
	"testing"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit/refuse"
)

// web is the service of the paper that the scenarios use.
const web = 0

func TestMain(m *testing.M) {
	refuse.Init()
	fixture.Main(m)
}
