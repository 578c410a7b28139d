package cloud

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/announce"
)

// patience is how long Announcer waits for the cloud, where routes are withdrawn:
// who waits longer keeps the rest of the agent from its work.
const patience = 5 * time.Second

// Announcer has a cloud lead prefixes to one balancer, which acts for itself.
type Announcer struct {
	node   string
	keeper Keeper
	stop   context.CancelFunc
	ended  sync.WaitGroup
	wake   chan struct{}

	mu    sync.Mutex // of what follows
	offer []Offer    // nil: nothing has been set yet
	state State
	// done is closed when what was set last has been brought to the cloud.
	done chan struct{}
	told bool // done is closed
}

var _ announce.Announcer = (*Announcer)(nil)

// NewAnnouncer makes one that leaves the cloud as it is until the first Set.
func NewAnnouncer(node string, k Keeper) *Announcer {
	ctx, stop := context.WithCancel(context.Background())
	a := &Announcer{
		node: node, keeper: k, stop: stop, wake: make(chan struct{}, 1), done: make(chan struct{}),
		state: Waiting(k.Provider.Name(), time.Now()),
	}
	a.ended.Go(func() { a.run(ctx) })
	return a
}

// Set has the cloud lead these prefixes here, soon; where some are withdrawn it
// waits, for a while, until they are led here no more.
func (a *Announcer) Set(routes []announce.Route) error {
	routes = Carried(routes)
	a.mu.Lock()
	withdraws := slices.ContainsFunc(a.routes(), func(r announce.Route) bool { return !slices.Contains(routes, r) })
	a.offer = []Offer{{a.node, routes}}
	done := make(chan struct{})
	a.done, a.told = done, false
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
	if withdraws {
		select {
		case <-done:
		case <-time.After(patience):
			a.keeper.Log.Warn("the cloud may still lead withdrawn routes here", "waited", patience)
		}
	}
	return nil
}

// routes are those that were set.
func (a *Announcer) routes() []announce.Route {
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
		offer, done := a.offer, a.done
		a.mu.Unlock()
		if offer == nil {
			continue
		}
		state, current := a.keeper.Pass(ctx, offer)
		a.mu.Lock()
		if a.state = state; current && state.State != Failing && a.done == done && !a.told {
			a.told = true
			close(done)
		}
		a.mu.Unlock()
	}
}

// Peers is the cloud.
func (a *Announcer) Peers() []announce.Peer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return []announce.Peer{a.state.Peer(len(a.routes()))}
}

// Close has the cloud lead nothing here any more.
func (a *Announcer) Close() error {
	var err error
	a.mu.Lock()
	leads := len(a.routes()) > 0
	a.mu.Unlock()
	if leads {
		err = a.Set(nil)
	}
	a.stop()
	a.ended.Wait()
	return err
}
