// Package reconciler is the loop: it waits for a change, asks plan what should
// be, compares that with what the data plane holds and what is announced, and
// closes the gap: withdraw, upsert, delete, announce, in that order. It is
// level-triggered: a missed event or a failed call heals at the next pass. It
// decides nothing itself and knows no kernel, no BGP and no file.
package reconciler

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/source"
)

// Prober runs health probes; reconciler/probe is the real one.
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
	Set([]desired.Frontend) error
}

// Claims remembers, over restarts, for which Service each Key is programmed.
type Claims interface {
	Load() map[service.Key]service.ID
	Store(map[service.Key]service.ID)
}

// Config is what the loop works on. Source is needed; of the others, each that
// is nil is a part of the work that this agent does not do.
type Config struct {
	Source     source.Source
	Prober     Prober
	DataPlane  dataplane.DataPlane
	Announcer  advertise.Announcer
	ServerHalf ServerHalf
	// Claims protects what is programmed against newcomers that claim the same Keys.
	// nil: the Services' ages alone decide, which all balancers must know then.
	Claims Claims
	Node   plan.Node
	// Linger is how long a frontend is still held after the withdrawal of its route
	// was confirmed, for packets that are on their way.
	Linger time.Duration
	// Own are this node's addresses among the Snapshot's Draining.
	Own []netip.Addr
	// Taken gives further addresses that no Service may have, and whose they are; nil
	// for none.
	Taken func() map[netip.Addr]string
	// Balancers says that the Source knows who the balancers are: one that goes
	// then waits until the others can know, before it withdraws its routes.
	Balancers bool
	// CheckSenders has backends of this node accept packets only from the Snapshot's
	// Senders, and from this node's own balancer.
	CheckSenders bool
	// DrainTimeout is how long at most the loop goes on, without its routes,
	// after its end was asked for, while the data plane remembers flows, or somebody
	// has not confirmed that the routes are gone (advertise.Withdrawal).
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

	// held is what the data plane holds, nil where that must be read.
	held map[service.Key]desired.Frontend
	// unsure says that a call to the data plane failed: it is read before the next.
	unsure bool
	// leaving are frontends that are held though the plan does not want them.
	leaving map[service.Key]*Leaving
	// announced are the routes that are announced, and since is when each was.
	announced []route.Route
	since     map[route.Route]time.Time
	// asked are those of the last call to the announcer, unless there was none, and
	// unsaid is what fails of it, since unsaidAt.
	asked    []route.Route
	begun    bool
	unsaid   error
	unsaidAt time.Time
	// withdrawing are the withdrawals that nobody has confirmed, when they were looked
	// at last.
	withdrawing []advertise.Withdrawal
	// refused are wishes that the data plane cannot fulfil, and why.
	refused map[service.Key]refusal
	// owners are the Services for which Keys are programmed.
	owners map[service.Key]service.ID
	// conflicts are those of the last plan.
	conflicts map[conflict]bool
	// failed are frontends that could not be written, rested those that were not tried
	// again in this pass.
	failed map[service.Key]*failure
	rested map[string]bool
	// retry is the pause after what else fails.
	retry time.Duration
	// others are the balancers that the data plane is configured with; nil before the
	// first time.
	others *balancers
	// senders are those that the ServerHalf accepts packets from; nil before it was told.
	senders *[]netip.Addr
	// sendersFailed says that it could not take the latest.
	sendersFailed bool
	// open says that routes may be announced, known when the source first named this load
	// balancer.
	open  bool
	known time.Time
	// passed is when the last pass began, began when the first one had a plan, prepared
	// that the data plane is ready for what others hand to it.
	passed   time.Time
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
	wish desired.Frontend
	err  error
}

// New gives a loop that has not begun.
func New(c Config) *Loop {
	l := &Loop{
		Config: c, wake: make(chan struct{}, 1),
		leaving: map[service.Key]*Leaving{}, since: map[route.Route]time.Time{}, refused: map[service.Key]refusal{},
		failed: map[service.Key]*failure{},
	}
	if c.Claims != nil {
		l.owners = c.Claims.Load()
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
	confirm := time.NewTicker(confirmPace)
	defer confirm.Stop()
	confirm.Stop()
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
		case <-confirm.C:
			if !l.lookForConfirmations() {
				continue
			}
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
		if len(l.withdrawing) > 0 {
			confirm.Reset(confirmPace)
		} else {
			confirm.Stop()
		}
		if l.ending && l.drain.stage == plan.Drained {
			return nil
		}
	}
}

// withdrawAll takes back every route and gives packets on their way time to
// arrive.
func (l *Loop) withdrawAll() {
	if l.Announcer == nil || len(l.announced) == 0 && len(l.unconfirmed()) == 0 {
		return
	}
	failures := map[string]error{}
	l.announce(nil, failures)
	for what, err := range failures {
		l.Log.Error("cannot withdraw the routes", "what", what, "error", err)
	}
	l.lookForConfirmations()
	l.publish(l.view.Load().Plan, l.snapshot.Load(), l.view.Load().Failures)
	l.awaitWithdrawn()
}
