package packet

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane/internal/counter"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestDropsAreExplained: the page explains every reason of
// fairlead_proxy_dropped_packets_total, and no others.
func TestDropsAreExplained(t *testing.T) {
	names, err := counter.Names(loadPacket, "packet_counter")
	if err != nil {
		t.Fatal(err)
	}
	var drops []string
	for _, name := range names {
		if reason, dropped := strings.CutPrefix(name, "dropped-"); dropped {
			drops = append(drops, reason)
		}
	}
	testkit.Explained(t, "../../../docs/troubleshooting.md", "| drop reason of the service proxy | cause | resolution |", drops)
}
