package diff_test

import (
	"testing"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }
