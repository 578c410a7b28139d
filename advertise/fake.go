package advertise

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/route"
)

// Fake is an Announcer that keeps what it was given. It is for tests; the zero
// value is ready.
type Fake struct {
	mu      sync.Mutex
	routes  []route.Route
	history [][]route.Route
	peers   []Peer
	fail    error
	closed  bool
	// withheld is why withdrawals are not confirmed; empty where they are.
	withheld    string
	withdrawing map[netip.Prefix]Withdrawal
}

var _ Announcer = (*Fake)(nil)

// Set keeps the routes, sorted; after Fail it returns that error and keeps
// what it had.
func (f *Fake) Set(routes []route.Route) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.New("announcer is closed")
	}
	if f.fail != nil {
		return f.fail
	}
	sorted := slices.Clone(routes)
	slices.SortFunc(sorted, route.Route.Compare)
	f.withdraw(sorted)
	f.routes = sorted
	f.history = append(f.history, sorted)
	return nil
}

// withdraw notes what is in f.routes and no longer in next, where that is not
// confirmed at once.
func (f *Fake) withdraw(next []route.Route) {
	if f.withdrawing == nil {
		f.withdrawing = map[netip.Prefix]Withdrawal{}
	}
	if f.withheld != "" {
		for _, r := range f.routes {
			f.withdrawing[r.Prefix] = Withdrawal{Prefix: r.Prefix, From: "the fake", Since: time.Now(), Reason: f.withheld}
		}
	}
	for _, r := range next {
		delete(f.withdrawing, r.Prefix)
	}
}

// Withhold lets withdrawals from now on not be confirmed, for a reason; an empty one
// confirms all.
func (f *Fake) Withhold(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.withheld = reason; reason == "" {
		clear(f.withdrawing)
	}
}

// Withdrawing gives what Withhold keeps from being confirmed.
func (f *Fake) Withdrawing() []Withdrawal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.withdrawing), Withdrawal.Compare)
}

// Peers gives what SetPeers was given.
func (f *Fake) Peers() []Peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.peers)
}

// Close forgets the routes.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes, f.closed = nil, true
	return nil
}

// Fail makes every following Set return err; nil ends that.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// SetPeers says what Peers gives.
func (f *Fake) SetPeers(peers []Peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peers = slices.Clone(peers)
}

// Routes gives what is announced now, sorted.
func (f *Fake) Routes() []route.Route {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.routes)
}

// History gives every set that was accepted, oldest first.
func (f *Fake) History() [][]route.Route {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.history)
}
