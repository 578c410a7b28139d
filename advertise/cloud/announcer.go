package cloud

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/route"
)

// patience is how long Close waits for the cloud to withdraw what is left: the
// process is about to end.
const patience = 5 * time.Second

// Announcer has a cloud lead prefixes to one balancer, which acts for itself. The
// API is called in the background; Withdrawing says what it has not confirmed.
type Announcer struct {
	node   string
	keeper Keeper
	stop   context.CancelFunc
	ended  sync.WaitGroup
	wake   chan struct{}
	// passed is told after each call of the API.
	passed chan struct{}

	mu    sync.Mutex // of what follows
	offer []Offer    // nil: nothing has been set yet
	state State
	out   Out
}

var _ advertise.Announcer = (*Announcer)(nil)

// NewAnnouncer makes one that leaves the cloud as it is until the first Set.
func NewAnnouncer(node string, k Keeper) *Announcer {
	ctx, stop := context.WithCancel(context.Background())
	a := &Announcer{
		node: node, keeper: k, stop: stop, wake: make(chan struct{}, 1), passed: make(chan struct{}, 1),
		state: Waiting(k.Provider.Name(), time.Now()), out: NewOut(time.Now()),
	}
	a.ended.Go(func() { a.run(ctx) })
	return a
}

// Set has the cloud lead these prefixes here, soon, and no others.
func (a *Announcer) Set(routes []route.Route) error {
	routes = Carried(routes)
	a.mu.Lock()
	a.offer = []Offer{{a.node, routes}}
	a.out.Offer(routes, time.Now())
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return nil
}

// Withdrawing are the prefixes that the cloud may still lead here.
func (a *Announcer) Withdrawing() []advertise.Withdrawal {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Withdrawing(a.state)
}

// routes are those that were set.
func (a *Announcer) routes() []route.Route {
	if len(a.offer) == 0 {
		return nil
	}
	return a.offer[0].Routes
}

// run calls the Keeper again and again: it knows when there is something to do.
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
		select {
		case a.passed <- struct{}{}:
		default:
		}
	}
}

// Peers is the cloud.
func (a *Announcer) Peers() []advertise.Peer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return []advertise.Peer{a.state.Peer(len(a.routes()))}
}

// Close has the cloud lead nothing here any more, as far as it answers soon.
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

// await waits a while until all is withdrawn.
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
			a.keeper.Log.Warn("the cloud may still lead withdrawn routes here", "routes", len(left), "first", left[0].Prefix, "reason", left[0].Reason)
			return
		}
	}
}

// Out are the prefixes that a cloud may lead to one balancer. It is for one
// goroutine at a time.
type Out struct {
	// withdrawn is by prefix when it was withdrawn; zero for what is offered.
	withdrawn map[netip.Prefix]time.Time
	// unknown is since when it is not known what an earlier process has left there;
	// zero once it is.
	unknown time.Time
}

// NewOut knows nothing yet of what an earlier process has left in the cloud.
func NewOut(now time.Time) Out { return Out{withdrawn: map[netip.Prefix]time.Time{}, unknown: now} }

// Offer says what is offered from now on.
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

// Answered takes in how the cloud stands since it was told of these routes.
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
	for _, p := range s.Undone { // all that an earlier process has left
		if _, known := o.withdrawn[p]; !known && !is[p] {
			o.withdrawn[p] = o.unknown
		}
	}
	o.unknown = time.Time{}
}

// Withdrawing are the prefixes of which the cloud has not confirmed that it does not
// lead them here.
func (o *Out) Withdrawing(s State) []advertise.Withdrawal {
	from, reason := "cloud "+s.Name, "it has not answered yet"
	if s.Name == "cloud" { // no controller has named it yet
		from = s.Name
	}
	if s.State != advertise.Established && s.LastError != "" {
		reason = s.LastError
	}
	if !o.unknown.IsZero() {
		return advertise.Everything(from, o.unknown, "what an earlier agent announced there is not known: "+reason)
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
