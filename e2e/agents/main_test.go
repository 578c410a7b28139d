package agents_test

import (
	"testing"

	"github.com/fairlead/fairlead/e2e/internal/world"
)

// web is the paper's service that the stories use.
const web = 0

func TestMain(m *testing.M) { world.Main(m) }
