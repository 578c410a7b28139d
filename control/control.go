// Package control is the loop: it waits for a change, asks plan what should
// be, compares that with what the data plane holds and what is announced, and
// closes the gap: withdraw, upsert, delete, announce, in that order. It is
// level-triggered: a missed event or a failed call heals at the next pass. It
// decides nothing itself and knows no kernel, no BGP and no file.
package control

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/plan"
	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
)

// Prober runs health probes; health/probe is the real one.
type Prober interface {
	// Set replaces the targets; one that stays keeps its state.
	Set([]health.Target)
	State(health.Target) health.State
	// Changed gets a value after some state has changed.
	Changed() <-chan struct{}
}

// ServerHalf is the other half of direct return on the servers' node.
type ServerHalf interface {
	// SetBalancers takes the addresses from which alone tunnelled packets are accepted;
	// nil: any. It is called before the first Set.
	SetBalancers([]netip.Addr) error
	// Set takes the frontends of every Service; which of their backends are
	// local, and so its business, it finds out itself.
	Set([]dataplane.Frontend) error
}

// Config is what the loop works on. Source is needed; of the others, each that
// is nil is a part of the work that this agent does not do.
type Config struct {
	Source     source.Source
	Prober     Prober
	DataPlane  dataplane.DataPlane
	Announcer  announce.Announcer
	ServerHalf ServerHalf
	Node       plan.Node
	// Linger is how long a frontend whose route was withdrawn is still held,
	// for packets that are on their way.
	Linger time.Duration
	// Own are this node's addresses among the Snapshot's Draining.
	Own []netip.Addr
	// Balancers says that the Source knows who the balancers are: one that goes
	// then waits until the others can know, before it withdraws its routes.
	Balancers bool
	// CheckSenders has backends of this node accept packets only from the Snapshot's
	// Senders, and from this node's own balancer.
	CheckSenders bool
	// DrainTimeout is how long at most the loop goes on, without its routes,
	// after its end was asked for, while the data plane remembers flows, or routers
	// may not know that the routes are gone (announce.Doubter).
	DrainTimeout time.Duration
	// DrainNotice is for how long routes are announced as ones to avoid before
	// they are withdrawn, and Avoid how; nothing for not at all.
	DrainNotice time.Duration
	Avoid       plan.Avoid
	// OnDrain, where there is one, is told of each change of stage; it must not wait.
	OnDrain func(Drain)
	// Hurry, closed, cuts that short; nil never does.
	Hurry <-chan struct{}
	// Resync is how often everything is compared again with what the data
	// plane really holds.
	Resync time.Duration
	Log    *slog.Logger
}

// Delays between passes after a failure: doubled from the first to the last.
const (
	retryFirst = 100 * time.Millisecond
	retryLast  = 10 * time.Second
)

// Loop is the control loop.
type Loop struct {
	Config
	snapshot atomic.Pointer[source.Snapshot]
	view     atomic.Pointer[View]
	wake     chan struct{}

	// What follows belongs to the goroutine of Run.

	// held is what the data plane holds, nil where that must be read anew.
	held map[service.Key]dataplane.Frontend
	// lingering are frontends to delete when their time has come.
	lingering map[service.Key]time.Time
	announced []announce.Route
	// since is when each of them was announced.
	since map[announce.Route]time.Time
	// refused are wishes that the data plane cannot fulfil, and why.
	refused map[service.Key]refusal
	// failed counts how often in a row a frontend could not be written.
	failed map[service.Key]int
	retry  time.Duration
	// others are the balancers that the data plane is configured with; nil before the
	// first time.
	others *balancers
	// senders are those that the ServerHalf accepts packets from; nil before it was told.
	senders *[]netip.Addr
	// sendersFailed says that it could not take the latest.
	sendersFailed bool
	// open says that routes may be announced, first when that was first wanted, known
	// when the source first named this load balancer.
	open         bool
	first, known time.Time
	// began is when the first pass did, prepared that the data plane is ready for
	// what others hand to it.
	began    time.Time
	prepared bool
	// settled says that a pass has been whole.
	settled bool
	// drain is where the loop is on its way out, ending that it was told to end.
	drain  draining
	ending bool
	// ordered says that an operator wants this balancer drained.
	ordered atomic.Bool
}

type refusal struct {
	wish dataplane.Frontend
	err  error
}

// New gives a loop that has not begun.
func New(c Config) *Loop {
	l := &Loop{
		Config: c, wake: make(chan struct{}, 1),
		lingering: map[service.Key]time.Time{}, since: map[announce.Route]time.Time{}, refused: map[service.Key]refusal{},
		failed: map[service.Key]int{},
	}
	l.view.Store(&View{Plan: &plan.Plan{}, Waits: "the Services have not been read yet"})
	return l
}

// Run works until ctx ends; then it drains and returns. Where the source gives up it
// withdraws the routes and returns after Linger. What the data plane holds stays.
func (l *Loop) Run(ctx context.Context) error {
	sourceCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- l.Source.Run(sourceCtx, func(s source.Snapshot) {
			l.snapshot.Store(&s)
			select {
			case l.wake <- struct{}{}:
			default:
			}
		})
	}()
	if err := l.loop(ctx, ended); err != nil {
		l.withdrawAll()
		return err
	}
	l.ending = true
	if err := l.loop(context.WithoutCancel(ctx), ended); err != nil {
		l.Log.Error("the source ended while draining", "error", err)
		l.withdrawAll()
	}
	return nil
}

// loop works until ctx ends, the source gives up or, where the loop is ending, it
// has drained.
func (l *Loop) loop(ctx context.Context, ended <-chan error) error {
	var probed <-chan struct{}
	if l.Prober != nil {
		probed = l.Prober.Changed()
	}
	resync := time.NewTicker(l.Resync)
	defer resync.Stop()
	again := time.NewTimer(0) // at once: whoever is ending has something to do
	defer again.Stop()
	hurry := l.Hurry
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-l.wake:
		case <-probed:
		case <-again.C:
		case <-hurry:
			hurry, l.drain.hurry = nil, true
		case <-resync.C:
			l.held = nil
		}
		if l.snapshot.Load() == nil {
			if l.ending {
				return nil // nothing was begun
			}
			continue // nothing is touched before the source has loaded
		}
		again.Reset(l.pass())
		if l.ending && l.drain.stage == plan.Drained {
			return nil
		}
	}
}

// withdrawAll takes back every route and gives packets on their way time to
// arrive.
func (l *Loop) withdrawAll() {
	if l.Announcer == nil || len(l.announced) == 0 {
		return
	}
	if err := l.Announcer.Set(nil); err != nil {
		l.Log.Error("cannot withdraw the routes", "error", err)
		return
	}
	l.announced = nil
	clear(l.since)
	l.publish(l.view.Load().Plan, l.view.Load().Problems, l.view.Load().Failures)
	for began, left := time.Now(), l.Linger; left > 0; left = l.lingerSince(began) - time.Since(began) {
		time.Sleep(min(left, max(l.Linger, doubtPace)))
	}
}
