package ipvs

import (
	"testing"

	"github.com/fairlead/fairlead/internal/testkit"
)

func TestMain(m *testing.M) { testkit.MainIPVS(m) }
