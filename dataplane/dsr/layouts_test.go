package dsr

import (
	"testing"

	"github.com/fairlead/fairlead/internal/bpfload/layouttest"
)

// Other releases find these maps: see docs/upgrade.md.
func TestLayouts(t *testing.T) { layouttest.Check(t, loadDsr, kept, "layouts.json") }
