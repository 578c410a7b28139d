package xdp

import (
	"iter"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
	"github.com/fairlead/fairlead/dataplane/xdp/synflood"
)

// sourcesEvery is the number of sweeps of the flow table per sweep of validated sources.
const sourcesEvery = 600

// sweeper sweeps the flow table once a second while this process runs. Without it, expired
// entries only wait to be replaced.
type sweeper struct{ stop, done chan struct{} }

func (d *DataPlane) startSweeping() {
	d.sweeper = sweeper{make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(d.sweeper.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-d.sweeper.stop:
				return
			case <-tick.C:
				d.sweep(flowtable.Now())
			}
			if n%sourcesEvery == 0 {
				_ = synflood.ForgetSources(d.kernel.SynSources, flowtable.Now()) // retried the next time
			}
		}
	}()
}

func (s *sweeper) close() {
	if s.stop == nil {
		return
	}
	close(s.stop)
	<-s.done
	s.stop = nil
}

// sweep clears expired flows and those of removed servers, and recounts every server's
// connections.
func (d *DataPlane) sweep(now uint32) {
	d.mu.Lock()
	c := d.flows.Begin(d.servers.owners())
	d.mu.Unlock()
	d.flows.Run(c, now)
	d.flows.SweepSYN(d.kernel.SynFlows, now)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flows.End(c, d.servers.owners())
	_ = d.setUses(d.uses) // only makes packets faster, and is tried again
}

// EachFlow returns the tracked flows that match a query, in no order, one part of the
// table at a time. Opening flows are included only with nat and fullnat: otherwise the
// table does not know their addresses yet. It may be called from any goroutine.
// Concurrent changes may be missed. An error ends it.
func (d *DataPlane) EachFlow(q dataplane.FlowQuery) iter.Seq2[dataplane.Flow, error] {
	return func(yield func(dataplane.Flow, error) bool) {
		next := 0
		q.Give(yield, func() (found []dataplane.Flow, more bool, err error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			found, next, err = d.flows.Some(q, next, flowtable.View{
				Owners: d.servers.owners().Current, Addr: d.servers.addrOf, Source4: d.config.SourceV4, Source6: d.config.SourceV6,
			})
			return found, next > 0, err
		})
	}
}

// Remembered counts the live flows. Those that have started to end count as long as
// packets arrive. It may be called from any goroutine.
func (d *DataPlane) Remembered() (flows int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flows.Live()
}
