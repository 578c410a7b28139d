package xdp

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// With a table that is too small, new flows continue, old ones may break, and a warning
// reports it.
func TestTooFewChains(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxChains = 1
	d := n.open(t, c)
	f := frontend(service.Tunnel, vips[false], service.TCP, "172.16.5.1:80", "172.16.5.2:80", "172.16.5.3:80")
	upsert(t, d, f)
	if w := d.Describe().Warnings; len(w) != 0 {
		t.Fatalf("warns too early: %q", w)
	}
	f.Backends[0].Weight, f.Backends[1].Weight = 0, 0
	upsert(t, d, f)
	slots, chained := d.rings.Slots(d.programmed[f.Key].ring()), 0
	for i, s := range slots {
		if s.First != d.programmed[f.Key].members[2].id {
			t.Fatalf("slot %d: %+v", i, s)
		}
		if s.Older[0] != 0 {
			chained++
		}
	}
	if chained == 0 || chained == len(slots) {
		t.Errorf("%d of %d slots have a chain", chained, len(slots))
	}
	if w := d.Describe().Warnings; len(w) != 1 || !strings.Contains(w[0], "MaxChains") {
		t.Errorf("warns %q", w)
	}
}
