package agents_test

import (
	"testing"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit/promtool"
	"github.com/fairlead/fairlead/lab/testkit/refuse"
)

// web is the service of the paper that the scenarios use.
const web = 0

func TestMain(m *testing.M) {
	refuse.Init()
	_, _ = promtool.Build() // before the sandbox, which has no network; tests report errors
	fixture.Main(m)
}
