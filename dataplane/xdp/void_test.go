package xdp

import (
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
)

// A flow is void forever when its backend is removed, regardless of how many owners the
// backend's number has had since, and even without sweeps.
func TestGenerationsNeverComeRound(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxBackends = 1
	d := n.open(t, c)
	d.sweeper.close()
	f := stateful(service.RoundRobin, 1)
	upsert(t, d, f)
	opened(t, n, d, vips[false], 3)
	const generationBits = 7 // in an entry of the flow table
	for i := range 2 << generationBits {
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
	d.sweeper.close()
	f := stateful(service.RoundRobin, 1)
	upsert(t, d, f)
	sweep := d.flows.Begin(d.servers.owners())
	must(t, d.Delete(f.Key))
	upsert(t, d, f)
	opened(t, n, d, vips[false], 3)
	d.flows.Run(sweep, flowtable.Now())
	d.flows.End(sweep, d.servers.owners())
	if all, err := allFlows(d); err != nil || len(all) != 3 || d.flows.Connections[1] != 3*flowtable.Active {
		t.Errorf("%v, %v, %d connections", all, err, d.flows.Connections[1])
	}
}
