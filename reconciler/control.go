// Package reconciler contains the control loop. It waits for a change, computes the plan,
// compares it with what the data plane has and what is advertised, and applies the
// differences: withdraw, upsert, delete, advertise, in that order. It is level-triggered:
// missed events and failed calls are corrected in the next pass. Package plan makes all
// decisions; the kernel, BGP and files are behind interfaces.
package reconciler

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/heartbeat"
	"github.com/fairlead/fairlead/internal/histogram"
	"github.com/fairlead/fairlead/internal/keyed"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source"
)

// Prober runs health probes. It is implemented by reconciler/probe.
type Prober interface {
	// Change adds targets, which are new, and removes others.
	Change(add, remove []health.Target)
	State(health.Target) health.State
	// Transitions returns the addresses of targets whose state has changed since the last
	// call, or that were removed; nil: any may have.
	Transitions() map[netip.Addr]bool
	// Changed receives a value after some state has changed.
	Changed() <-chan struct{}
}

// DSRAgent is the DSR agent, the part of direct server return on the backends' node.
type DSRAgent interface {
	// SetBalancers sets the only addresses from which tunneled packets are accepted; nil
	// means any. It is called before the first Set.
	SetBalancers([]netip.Addr) error
	// Set sets the frontends of all Services. The implementation selects those with local
	// backends.
	Set([]desired.Frontend) error
}

// Claims persists across restarts which Service each Key is programmed for.
type Claims interface {
	Load() map[service.Key]service.ID
	Store(map[service.Key]service.ID)
}

// Config configures the loop. Source is required. Each of the others that is nil disables
// that part of the work.
type Config struct {
	Source    source.Source
	Prober    Prober
	DataPlane dataplane.DataPlane
	Announcer advertise.Announcer
	DSRAgent  DSRAgent
	// Claims protects what is programmed against newcomers that claim the same Keys. If
	// it is nil, only the age of the Services decides, which all load balancers must then
	// know.
	Claims Claims
	Node   plan.Node
	// Linger is how long a frontend stays programmed after the withdrawal of its route
	// was confirmed, for packets in transit.
	Linger time.Duration
	// Own are this node's addresses, to be found in the Snapshot's Draining.
	Own []netip.Addr
	// Taken returns further addresses that no Service may have, with their owners. May be
	// nil.
	Taken func() map[netip.Addr]string
	// Balancers means that the Source knows the load balancers. A load balancer that
	// leaves then waits until the others can know, before it withdraws its routes.
	Balancers bool
	// CheckSenders makes backends of this node accept packets only from the Snapshot's
	// Senders and from this node's own load balancer.
	CheckSenders bool
	// DrainTimeout limits how long the loop continues without routes after it was asked
	// to stop, while the data plane has tracked flows or some peer has not confirmed a
	// withdrawal (advertise.Withdrawal).
	DrainTimeout time.Duration
	// DrainNotice is how long routes are advertised as least preferred before they are
	// withdrawn, and Avoid how they are marked. Zero: not at all.
	DrainNotice time.Duration
	Avoid       plan.Avoid
	// OnDrain, if not nil, is called for each change of stage. It must not block.
	OnDrain func(Drain)
	// OnChange, if not nil, is called after each pass that changed something. It must not
	// block.
	OnChange func(Change)
	// Events records what the loop changes, except for drains; nil for none.
	Events event.Recorder
	// Hurry, when closed, cuts the drain short. May be nil.
	Hurry <-chan struct{}
	// Resync is the interval of a full comparison with the actual state of the data
	// plane.
	Resync time.Duration
	// Rounds notices if a pass is stuck; nil for none.
	Rounds *heartbeat.Rounds
	Log    *slog.Logger
}

// Loop is the control loop.
type Loop struct {
	Config
	snapshot atomic.Pointer[source.Snapshot]
	view     atomic.Pointer[View]
	learned  atomic.Pointer[time.Time] // Change.Learned of the next pass
	wake     chan struct{}
	// previews are functions to run between two passes.
	previews chan func()

	// The following fields are owned by the goroutine of Run.

	// held is what the data plane has, or nil if it must be read.
	held map[service.Key]desired.Frontend
	// keys records the frontends that the data plane rejects, and those that could not be
	// written or deleted. A deletion is recorded with an empty frontend as desired.
	keys keyed.Tracker[service.Key, desired.Frontend]
	// leaving holds frontends that are still programmed although the plan does not
	// include them.
	leaving map[service.Key]*Leaving
	// announced lists the advertised routes, and since the time at which each was first
	// advertised.
	announced []route.Route
	since     map[route.Route]time.Time
	// asked lists the routes of the last call to the announcer, if begun. unsaid is its
	// failure.
	asked  []route.Route
	begun  bool
	unsaid keyed.Retry
	// withdrawing lists the unconfirmed withdrawals as of the last check.
	withdrawing []advertise.Withdrawal
	// owners maps Keys to the Services for which they are programmed.
	owners map[service.Key]service.ID
	// conflicts holds the conflicts of the last plan.
	conflicts map[conflict]bool
	// missed counts the frontends that failed in this pass, tries the passes in a row in
	// which anything else did.
	missed, tries int
	// failures counts failed calls since the start. failing are those to be retried.
	failures uint64
	failing  map[string]failing
	// change records this pass, or is nil.
	change *Change
	// planner has the decisions of earlier passes; planned is the plan of this one.
	planner plan.Planner
	planned *plan.Plan
	// others is the set of load balancers configured in the data plane; nil before the
	// first time.
	others *balancers
	// senders lists the accepted senders configured in the DSRAgent; nil before the
	// first time.
	senders *[]netip.Addr
	// sendersFailed means that the latest senders could not be configured.
	sendersFailed bool
	// open means that routes may be advertised. known is when the source first named this
	// load balancer.
	open  bool
	known time.Time
	// passed is when the last pass began, began when the first pass had a plan. prepared
	// means that the data plane is ready for packets that others hand over.
	passed   time.Time
	began    time.Time
	prepared bool
	// settled means that a pass has been complete.
	settled bool
	// drain is the state of draining. ending means that the loop was asked to stop.
	drain  draining
	ending bool
	// ordered means that an operator requested the drain.
	ordered atomic.Bool

	durations histogram.Shared
}

// New returns a loop that is not yet running.
func New(c Config) *Loop {
	l := &Loop{
		Config: c, wake: make(chan struct{}, 1), previews: make(chan func()),
		leaving: map[service.Key]*Leaving{}, since: map[route.Route]time.Time{},
		keys: keyed.Tracker[service.Key, desired.Frontend]{Same: desired.Frontend.Same, IsRejection: isUnsupported},
	}
	if c.Claims != nil {
		l.owners = c.Claims.Load()
	}
	l.view.Store(&View{Plan: &plan.Plan{}, Waits: "the Services have not been read yet"})
	return l
}

// Durations returns the durations of all passes.
func (l *Loop) Durations() histogram.Histogram { return l.durations.Get() }

// Run runs until ctx is canceled, then drains and returns. If the source fails
// permanently, it withdraws the routes and returns after Linger. The data plane's
// contents stay.
func (l *Loop) Run(ctx context.Context) error {
	sourceCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- l.Source.Run(sourceCtx, func(s source.Snapshot) {
			l.snapshot.Store(&s)
			if l.OnChange != nil {
				l.learned.CompareAndSwap(nil, new(time.Now()))
			}
			wake.Up(l.wake)
		})
	}()
	if err := l.loop(ctx, ended); err != nil {
		l.withdrawAll()
		return err
	}
	l.ending = true
	if err := l.loop(context.WithoutCancel(ctx), ended); err != nil {
		l.Log.Error("the source stopped during the drain", "error", err)
		l.withdrawAll()
	}
	return nil
}

// loop runs until ctx is canceled, the source fails or, if the loop is ending, the drain
// is complete.
func (l *Loop) loop(ctx context.Context, ended <-chan error) error {
	var probed <-chan struct{}
	if l.Prober != nil {
		probed = l.Prober.Changed()
	}
	resync := time.NewTicker(l.Resync)
	defer resync.Stop()
	again := time.NewTimer(0) // immediately: a loop that is ending has work to do
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
		case preview := <-l.previews:
			preview()
			continue
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
				return nil // nothing was started
			}
			continue // change nothing before the source has loaded
		}
		began := time.Now()
		end := l.Rounds.Begin("load balancing")
		again.Reset(l.pass())
		end()
		l.durations.Observe(time.Since(began))
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

// withdrawAll withdraws every route and waits for packets in transit.
func (l *Loop) withdrawAll() {
	if l.Announcer == nil || len(l.announced) == 0 && len(l.unconfirmed()) == 0 {
		return
	}
	failures := map[string]error{}
	l.announce(nil, failures)
	for what, err := range failures {
		l.Log.Error("failed to withdraw the routes", "what", what, "error", err)
	}
	l.lookForConfirmations()
	l.publish(l.view.Load().Plan, l.snapshot.Load(), l.view.Load().Failures)
	l.awaitWithdrawn()
}
