package dsr

import (
	"testing"

	"github.com/fairlead/fairlead/dataplane/internal/counter"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestOutcomesAreExplained: the page explains every counter of packets at backend nodes,
// and no others.
func TestOutcomesAreExplained(t *testing.T) {
	names, err := counter.Names(loadDsr, "server_counter")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Explained(t, "../../docs/troubleshooting.md", "| counter | meaning | what to do if it grows unexpectedly |", names)
}
