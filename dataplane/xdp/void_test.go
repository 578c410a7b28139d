package xdp

import (
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// A flow is void forever when its backend is removed, regardless of how many owners the
// backend's number has had since, and even without sweeps.
func TestGenerationsNeverComeRound(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxBackends = 1
	d := n.open(t, c)
	d.stopSweeping()
	f := stateful(service.RoundRobin, 1)
	upsert(t, d, f)
	opened(t, n, d, vips[false], 3)
	for i := range 2 * (generationMask + 1) {
		must(t, d.Delete(f.Key))
		upsert(t, d, f)
		if all, err := allFlows(d); err != nil || len(all) > 0 {
			t.Fatalf("after %d other owners of the number: %v, %v", i+1, all, err)
		}
	}
}

// A sweep keeps the flows of backends added since it began, although they have the
// numbers of removed ones.
func TestSweepLeavesWhatIsYounger(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxBackends = 1
	d := n.open(t, c)
	d.stopSweeping()
	f := stateful(service.RoundRobin, 1)
	upsert(t, d, f)
	sweep := d.beginSweep()
	must(t, d.Delete(f.Key))
	upsert(t, d, f)
	opened(t, n, d, vips[false], 3)
	d.flows.sweep(sweep, flowNow())
	d.endSweep(sweep)
	if all, err := allFlows(d); err != nil || len(all) != 3 || d.flows.connections[1] != 3*connectionActive {
		t.Errorf("%v, %v, %d connections", all, err, d.flows.connections[1])
	}
}
