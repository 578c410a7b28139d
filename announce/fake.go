package announce

import (
	"errors"
	"slices"
	"sync"
)

// Fake is an Announcer that keeps what it was given. It is for tests; the zero
// value is ready.
type Fake struct {
	mu      sync.Mutex
	routes  []Route
	history [][]Route
	peers   []Peer
	fail    error
	closed  bool
}

var _ Announcer = (*Fake)(nil)

// Set keeps the routes, sorted; after Fail it returns that error and keeps
// what it had.
func (f *Fake) Set(routes []Route) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.New("announcer is closed")
	}
	if f.fail != nil {
		return f.fail
	}
	sorted := slices.Clone(routes)
	slices.SortFunc(sorted, Route.Compare)
	f.routes = sorted
	f.history = append(f.history, sorted)
	return nil
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
func (f *Fake) Routes() []Route {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.routes)
}

// History gives every set that was accepted, oldest first.
func (f *Fake) History() [][]Route {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.history)
}
