package xdp

import (
	"testing"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestDropReasonsAreExplained: the page has a row for each drop reason, and no others.
func TestDropReasonsAreExplained(t *testing.T) {
	spec, err := config().withDefaults().program().Spec()
	must(t, err)
	reasons, err := bpf.EnumNames(spec, "drop_reason", "DROP_", int(bpf.BalancerDropReasonDROP_REASONS))
	must(t, err)
	testkit.Explained(t, "../../docs/troubleshooting.md", "| drop reason | cause | resolution |", reasons)
}
