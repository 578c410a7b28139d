package cloud

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/internal/wake"
)

// patience is how long Close waits for the cloud to withdraw what is left: the process is
// about to end.
const patience = 5 * time.Second

// Announcer makes a cloud route prefixes to one load balancer that acts for itself. The
// API is called in the background; Withdrawing reports what it has not confirmed.
type Announcer struct {
	node   string
	keeper Keeper
	stop   context.CancelFunc
	ended  sync.WaitGroup
	wake   chan struct{}
	// passed receives a value after each API call.
	passed chan struct{}

	mu    sync.Mutex // protects the following fields
	offer []Offer    // nil: not set yet
	state State
	out   Out
}

var _ advertise.Announcer = (*Announcer)(nil)

// NewAnnouncer returns an Announcer that does not change the cloud before the first Set.
func NewAnnouncer(node string, k Keeper) *Announcer {
	ctx, stop := context.WithCancel(context.Background())
	a := &Announcer{
		node: node, keeper: k, stop: stop, wake: make(chan struct{}, 1), passed: make(chan struct{}, 1),
		state: Waiting(k.Provider.Name(), time.Now()), out: NewOut(time.Now()),
	}
	a.ended.Go(func() { a.run(ctx) })
	return a
}

// Set asynchronously makes the cloud route exactly these prefixes here.
func (a *Announcer) Set(routes []route.Route) error {
	routes = Carried(routes)
	a.mu.Lock()
	a.offer = []Offer{{a.node, routes}}
	a.out.Offer(routes, time.Now())
	a.mu.Unlock()
	wake.Up(a.wake)
	return nil
}

// Withdrawing lists the prefixes that the cloud may still route here.
func (a *Announcer) Withdrawing() []advertise.Withdrawal {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Withdrawing(a.state)
}

// routes returns the routes that were set.
func (a *Announcer) routes() []route.Route {
	if len(a.offer) == 0 {
		return nil
	}
	return a.offer[0].Routes
}

// run calls the Keeper periodically: the Keeper decides whether there is something to do.
func (a *Announcer) run(ctx context.Context) {
	every := time.NewTicker(changePause / 2)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-every.C:
		}
		a.mu.Lock()
		offer := a.offer
		a.mu.Unlock()
		if offer == nil {
			continue
		}
		state, current := a.keeper.Pass(ctx, offer)
		a.mu.Lock()
		if a.state = state; current {
			a.out.Answered(offer[0].Routes, state)
		}
		a.mu.Unlock()
		wake.Up(a.passed)
	}
}

// Peers returns the cloud.
func (a *Announcer) Peers() []advertise.Peer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return []advertise.Peer{a.state.Peer(len(a.routes()))}
}

// Close removes all routes from the cloud, if it answers soon.
func (a *Announcer) Close() error {
	a.mu.Lock()
	begun := a.offer != nil
	a.mu.Unlock()
	if begun {
		_ = a.Set(nil) // never fails
		a.await()
	}
	a.stop()
	a.ended.Wait()
	return nil
}

// await waits a while until everything is withdrawn.
func (a *Announcer) await() {
	limit := time.After(patience)
	for {
		left := a.Withdrawing()
		if len(left) == 0 {
			return
		}
		select {
		case <-a.passed:
		case <-limit:
			a.keeper.Log.Warn("the cloud may still route withdrawn prefixes here", "routes", len(left), "first", left[0].Prefix, "reason", left[0].Reason)
			return
		}
	}
}

// Out tracks the prefixes that a cloud may route to one load balancer. It is not safe for
// concurrent use.
type Out struct {
	// withdrawn holds when each prefix was withdrawn; zero for those that are offered.
	withdrawn map[netip.Prefix]time.Time
	// unknown is the start of the time in which an earlier process's routes are unknown; zero
	// once they are known.
	unknown time.Time
}

// NewOut returns an Out that does not know what an earlier process left in the cloud.
func NewOut(now time.Time) Out { return Out{withdrawn: map[netip.Prefix]time.Time{}, unknown: now} }

// Offer sets what is offered from now on.
func (o *Out) Offer(routes []route.Route, now time.Time) {
	offered := make(map[netip.Prefix]bool, len(routes))
	for _, r := range routes {
		offered[r.Prefix] = true
		o.withdrawn[r.Prefix] = time.Time{}
	}
	for p, at := range o.withdrawn {
		if !offered[p] && at.IsZero() {
			o.withdrawn[p] = now
		}
	}
}

// Answered processes the state of the cloud after it was passed these routes.
func (o *Out) Answered(offered []route.Route, s State) {
	is := make(map[netip.Prefix]bool, len(offered))
	for _, r := range offered {
		is[r.Prefix] = true
	}
	for p, at := range o.withdrawn {
		if !at.IsZero() && !is[p] && s.Done(p) {
			delete(o.withdrawn, p)
		}
	}
	if o.unknown.IsZero() || s.State == Failing && len(s.Undone) == 0 {
		return
	}
	for _, p := range s.Undone { // everything that an earlier process left
		if _, known := o.withdrawn[p]; !known && !is[p] {
			o.withdrawn[p] = o.unknown
		}
	}
	o.unknown = time.Time{}
}

// Withdrawing lists the prefixes for which the cloud has not confirmed that it does not
// route them here.
func (o *Out) Withdrawing(s State) []advertise.Withdrawal {
	from, reason := "cloud "+s.Name, "no response yet"
	if s.Name == "cloud" { // no controller has named it yet
		from = s.Name
	}
	if s.State != advertise.Established && s.LastError != "" {
		reason = s.LastError
	}
	if !o.unknown.IsZero() {
		return advertise.Everything(from, o.unknown, "routes of an earlier agent are unknown: "+reason)
	}
	var all []advertise.Withdrawal
	for p, at := range o.withdrawn {
		if !at.IsZero() {
			all = append(all, advertise.Withdrawal{Prefix: p, From: from, Since: at, Reason: reason})
		}
	}
	slices.SortFunc(all, advertise.Withdrawal.Compare)
	return all
}
