package hierarchy_test

import (
	"testing"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
