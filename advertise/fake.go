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

// Fake is an Announcer for tests that stores what it is given. The zero value is ready to
// use.
type Fake struct {
	mu      sync.Mutex
	routes  []route.Route
	history [][]route.Route
	peers   []Peer
	fail    error
	closed  bool
	// withheld is why withdrawals are not confirmed; empty if they are.
	withheld    string
	withdrawing map[netip.Prefix]Withdrawal
}

var _ Announcer = (*Fake)(nil)

// Set stores the routes, sorted. After Fail, it returns that error and changes nothing.
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

// withdraw records the routes that are in f.routes but not in next, unless withdrawals
// are confirmed immediately.
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

// Withhold prevents withdrawals from being confirmed from now on, for a reason. An empty
// reason confirms all.
func (f *Fake) Withhold(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.withheld = reason; reason == "" {
		clear(f.withdrawing)
	}
}

// Withdrawing returns the withdrawals that Withhold prevents from being confirmed.
func (f *Fake) Withdrawing() []Withdrawal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.withdrawing), Withdrawal.Compare)
}

// Peers returns the peers passed to SetPeers.
func (f *Fake) Peers() []Peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.peers)
}

// Close removes the routes.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes, f.closed = nil, true
	return nil
}

// Fail makes all following calls of Set return err, until Fail(nil).
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// SetPeers sets the result of Peers.
func (f *Fake) SetPeers(peers []Peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peers = slices.Clone(peers)
}

// Routes returns the advertised routes, sorted.
func (f *Fake) Routes() []route.Route {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.routes)
}

// History returns every accepted set, oldest first.
func (f *Fake) History() [][]route.Route {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.history)
}
