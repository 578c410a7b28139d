package dsr

import (
	"testing"

	"github.com/fairlead/fairlead/internal/bpfload/layouttest"
)

// Another release finds these maps: see docs/upgrade.md.
func TestLayouts(t *testing.T) { layouttest.Check(t, loadServer, kept, "layouts.json") }
