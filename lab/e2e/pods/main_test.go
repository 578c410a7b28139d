package pods_test

import (
	"testing"

	"github.com/fairlead/fairlead/lab/e2e/internal/world"
)

func TestMain(m *testing.M) { world.Main(m) }
