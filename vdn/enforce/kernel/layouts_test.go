package kernel

import (
	"maps"
	"testing"

	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/bpfload/layouttest"
)

// TestLayouts: other releases reuse these maps, see docs/upgrade.md.
func TestLayouts(t *testing.T) {
	all := bpfload.KeptMaps{}
	maps.Copy(all, sharedMaps)
	maps.Copy(all, podMaps)
	layouttest.Check(t, loadVdn, all, "layouts.json")
}
