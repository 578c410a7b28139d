package seeded

import (
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/targets"
)

// Every bug can be applied to its file.
func TestBugs(t *testing.T) {
	names := map[string]bool{}
	for _, b := range Bugs {
		if _, err := b.Source(targets.Root); err != nil {
			t.Error(err)
		}
		if _, err := targets.ByName(b.Target); err != nil || names[b.Name] || b.What == "" || b.Old == b.New {
			t.Errorf("%s: target %s (%v), duplicate: %v, what: %q", b.Name, b.Target, err, names[b.Name], b.What)
		}
		names[b.Name] = true
	}
	if len(Bugs) < 20 {
		t.Errorf("%d bugs, want at least twenty", len(Bugs))
	}
}
