// Package fake is a data plane of the service proxy without a kernel, and its
// faulty twin, for tests.
package fake

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/core/proxy"
)

// Plane is a proxy.Plane in memory.
type Plane struct {
	mu    sync.Mutex
	held  map[proxy.Key]proxy.Frontend
	addrs []netip.Addr
	calls Calls
}

// Calls count what a Plane was asked for and what it did.
type Calls struct {
	// Applies are the calls of Apply; Set and Gone what they named, and Written
	// and Removed what of that was not so already.
	Applies, Set, Gone, Written, Removed int
	// Largest is the most frontends and keys that one call named.
	Largest int
}

// New gives an empty Plane.
func New() *Plane { return &Plane{held: map[proxy.Key]proxy.Frontend{}} }

// Apply implements proxy.Plane. It refuses a key that is named twice.
func (p *Plane) Apply(set []proxy.Frontend, gone []proxy.Key) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	named := make(map[proxy.Key]bool, len(set)+len(gone))
	for i := range set {
		named[set[i].Key] = true
	}
	for _, k := range gone {
		named[k] = true
	}
	if len(named) != len(set)+len(gone) {
		return fmt.Errorf("%d frontends and %d keys name only %d different ones", len(set), len(gone), len(named))
	}
	p.calls.Applies++
	p.calls.Set += len(set)
	p.calls.Gone += len(gone)
	p.calls.Largest = max(p.calls.Largest, len(named))
	for i := range set {
		if held, ok := p.held[set[i].Key]; !ok || !held.Same(&set[i]) {
			p.held[set[i].Key] = set[i]
			p.calls.Written++
		}
	}
	for _, k := range gone {
		if _, ok := p.held[k]; ok {
			delete(p.held, k)
			p.calls.Removed++
		}
	}
	return nil
}

// Keys implements proxy.Plane.
func (p *Plane) Keys() []proxy.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.held))
}

// SetNodeAddresses implements proxy.Plane.
func (p *Plane) SetNodeAddresses(addrs []netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs = slices.Clone(addrs)
	return nil
}

// Close implements proxy.Plane; what is held stays.
func (p *Plane) Close() error { return nil }

// Held gives the frontends held, sorted by Key.
func (p *Plane) Held() []proxy.Frontend {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.held), func(a, b proxy.Frontend) int { return a.Key.Compare(b.Key) })
}

// NodeAddresses gives the addresses that were set last.
func (p *Plane) NodeAddresses() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addrs
}

// Calls gives what was counted since the last call of it.
func (p *Plane) Calls() Calls {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls
	p.calls = Calls{}
	return c
}

// ErrFault is what a Faulty plane fails with.
var ErrFault = errors.New("injected fault")

// Faulty lets calls to another Plane fail: before, in the midst of or after
// their effect.
type Faulty struct {
	proxy.Plane
	mu   sync.Mutex
	rate float64
	rng  *rand.Rand
}

// NewFaulty wraps p so that calls fail at the given rate (0.1 is one in ten),
// the same ones for the same seed.
func NewFaulty(p proxy.Plane, rate float64, seed uint64) *Faulty {
	return &Faulty{Plane: p, rate: rate, rng: rand.New(rand.NewPCG(seed, 0))}
}

// SetRate changes the rate; 0 heals.
func (f *Faulty) SetRate(rate float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rate = rate
}

// upTo gives how much of n a call has of its effect, and whether it fails.
func (f *Faulty) upTo(n int) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rng.Float64() >= f.rate {
		return n, false
	}
	return f.rng.IntN(n + 1), true
}

// Apply implements proxy.Plane.
func (f *Faulty) Apply(set []proxy.Frontend, gone []proxy.Key) error {
	sets, fails := f.upTo(len(set))
	goes := len(gone)
	if fails && sets < len(set) {
		goes = 0
	}
	if err := f.Plane.Apply(set[:sets], gone[:goes]); err != nil || !fails {
		return err
	}
	return ErrFault
}

// SetNodeAddresses implements proxy.Plane.
func (f *Faulty) SetNodeAddresses(addrs []netip.Addr) error {
	if _, fails := f.upTo(0); fails {
		return ErrFault
	}
	return f.Plane.SetNodeAddresses(addrs)
}
