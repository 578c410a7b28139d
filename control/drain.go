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

// Until a balancer that goes has read of it in the source itself, the others have
// not either; noticeLimit is how long it waits for that, noticeSpread how much
// later than itself the others may read it.
const (
	noticeLimit  = 3 * time.Second
	noticeSpread = 300 * time.Millisecond
	noticePace   = 20 * time.Millisecond
)

// giveNotice goes on as before until the other balancers can know that this one
// is draining: packets of its flows that come to them from then on they hand
// over, while before they would take them for nobody's.
func (l *Loop) giveNotice(ended <-chan error) {
	keeper, ok := l.DataPlane.(dataplane.Peered)
	if !ok || !l.Balancers || l.DrainTimeout <= 0 || !l.remembers(keeper) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), noticeLimit)
	defer cancel()
	go func() {
		defer cancel()
		for !l.ownDraining() {
			if !l.await(ctx, noticePace) {
				l.Log.Warn("nobody says that this balancer is draining: the others cannot know", "waited", noticeLimit)
				return
			}
		}
		l.await(ctx, noticeSpread)
	}()
	if err := l.loop(ctx, ended); err != nil {
		l.Log.Error("the source ended while draining", "error", err)
	}
	<-ctx.Done()
}

// ownDraining says whether the source names this balancer among those that
// drain.
func (l *Loop) ownDraining() bool {
	s := l.snapshot.Load()
	return s != nil && slices.ContainsFunc(s.Draining, func(a netip.Addr) bool { return slices.Contains(l.Own, a) })
}

// await waits, and is false where ctx ends or somebody is in a hurry.
func (l *Loop) await(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-l.Hurry:
		return false
	case <-time.After(d):
		return true
	}
}

// drainPace is how often a data plane is asked whether it remembers flows
// still.
const drainPace = time.Second

// drain goes on working without a route, for as long as the data plane
// remembers flows that other balancers hand over, at most for DrainTimeout.
// Where no balancer knows of others, or the data plane hands nothing over, none
// does that.
func (l *Loop) drain(ended <-chan error) {
	keeper, ok := l.DataPlane.(dataplane.Peered)
	if !ok || !l.Balancers || l.DrainTimeout <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.DrainTimeout)
	defer cancel()
	began := time.Now()
	go func() {
		defer cancel()
		for l.remembers(keeper) {
			if !l.await(ctx, drainPace) {
				return
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
func (l *Loop) remembers(keeper dataplane.Peered) bool {
	flows, err := keeper.Remembered()
	if err != nil {
		l.Log.Warn("cannot count the remembered flows", "error", err)
		return true
	}
	l.Log.Debug("draining", "flows", flows)
	return flows > 0
}
