package xdp

import (
	"testing"

	"github.com/fairlead/fairlead/internal/bpfload/layouttest"
)

// Another release finds these maps: see docs/upgrade.md.
func TestLayouts(t *testing.T) { layouttest.Check(t, loadBalancer, kept, "layouts.json") }
