package control

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/source"
)

// tellDraining tells a data plane that remembers flows which of the other
// balancers are leaving, where that has changed or has not been told yet.
func (l *Loop) tellDraining(s *source.Snapshot, failures map[string]error) {
	peered, ok := l.DataPlane.(dataplane.Peered)
	if !ok {
		return
	}
	others := slices.DeleteFunc(slices.Clone(s.Draining), func(a netip.Addr) bool { return slices.Contains(l.Own, a) })
	if l.told != nil && slices.Equal(*l.told, others) {
		return
	}
	if err := peered.SetDraining(others); err != nil {
		failures["draining balancers"] = err
		return
	}
	if l.told != nil || len(others) > 0 {
		l.Log.Info("other balancers draining", "balancers", others)
	}
	l.told = &others
}

// drainPace is how often a data plane is asked whether it remembers flows
// still.
const drainPace = time.Second

// drain goes on working without a route, for as long as the data plane
// remembers flows that other balancers hand over, at most for DrainTimeout.
func (l *Loop) drain(ended <-chan error) {
	keeper, ok := l.DataPlane.(dataplane.Remembering)
	if !ok || l.DrainTimeout <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.DrainTimeout)
	defer cancel()
	began := time.Now()
	go func() {
		defer cancel()
		for l.remembers(keeper) {
			select {
			case <-ctx.Done():
				return
			case <-l.Hurry:
				return
			case <-time.After(drainPace):
			}
		}
	}()
	if err := l.loop(ctx, ended); err != nil {
		l.Log.Error("the source ended while draining", "error", err)
	}
	<-ctx.Done()
	l.Log.Info("drained", "after", time.Since(began).Round(time.Millisecond))
}

// remembers says whether there are flows to keep forwarding; where that cannot
// be said there may be.
func (l *Loop) remembers(keeper dataplane.Remembering) bool {
	flows, err := keeper.Remembered()
	if err != nil {
		l.Log.Warn("cannot count the remembered flows", "error", err)
		return true
	}
	l.Log.Debug("draining", "flows", flows)
	return flows > 0
}
