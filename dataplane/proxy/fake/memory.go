// Package fake is a data plane of the service proxy without a kernel, and its faulty
// variant, for tests.
package fake

import (
	"context"
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
	mu         sync.Mutex
	programmed map[proxy.Key]proxy.Frontend
	addrs      []netip.Addr
	calls      Calls
	altered    bool
}

// Calls count a Plane's requests and their effects.
type Calls struct {
	// Applies counts calls of Apply; Set and Gone the frontends and keys in them,
	// Written and Removed those that made a change.
	Applies, Set, Gone, Written, Removed int
	// Largest is the largest number of frontends and keys in one call.
	Largest int
}

// New returns an empty Plane.
func New() *Plane { return &Plane{programmed: map[proxy.Key]proxy.Frontend{}} }

// Apply implements proxy.Plane. It rejects duplicate keys.
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
		return fmt.Errorf("%d frontends and %d keys, but only %d are distinct", len(set), len(gone), len(named))
	}
	p.calls.Applies++
	p.calls.Set += len(set)
	p.calls.Gone += len(gone)
	p.calls.Largest = max(p.calls.Largest, len(named))
	for i := range set {
		if programmed, ok := p.programmed[set[i].Key]; !ok || !programmed.Same(&set[i]) {
			p.programmed[set[i].Key] = set[i]
			p.calls.Written++
		}
	}
	for _, k := range gone {
		if _, ok := p.programmed[k]; ok {
			delete(p.programmed, k)
			p.calls.Removed++
		}
	}
	return nil
}

// Keys implements proxy.Plane.
func (p *Plane) Keys() []proxy.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.altered = false
	return slices.Collect(maps.Keys(p.programmed))
}

// Alter changes what is programmed, as another process does.
func (p *Plane) Alter(set []proxy.Frontend, gone []proxy.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.altered = true
	for _, k := range gone {
		delete(p.programmed, k)
	}
	for _, f := range set {
		p.programmed[f.Key] = f
	}
}

// ErrAltered is the error of Check after Alter.
var ErrAltered = errors.New("altered by another process")

// Check implements proxy.Plane.
func (p *Plane) Check(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.altered {
		return ErrAltered
	}
	return nil
}

// SetNodeAddresses implements proxy.Plane.
func (p *Plane) SetNodeAddresses(addrs []netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs = slices.Clone(addrs)
	return nil
}

// Close implements proxy.Plane. What is programmed stays.
func (p *Plane) Close() error { return nil }

// Held returns the programmed frontends, sorted by Key.
func (p *Plane) Held() []proxy.Frontend {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.programmed), func(a, b proxy.Frontend) int { return a.Key.Compare(b.Key) })
}

// NodeAddresses returns the addresses that were set last.
func (p *Plane) NodeAddresses() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addrs
}

// Calls returns and resets the counts.
func (p *Plane) Calls() Calls {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls
	p.calls = Calls{}
	return c
}

// ErrFault is the error of an injected fault.
var ErrFault = errors.New("injected fault")

// Faulty makes calls to another Plane fail: before, during or after they take effect.
type Faulty struct {
	proxy.Plane
	mu   sync.Mutex
	rate float64
	rng  *rand.Rand
}

// NewFaulty wraps p so that calls fail at the given rate (0.1 is one in ten). The same
// seed gives the same failures.
func NewFaulty(p proxy.Plane, rate float64, seed uint64) *Faulty {
	return &Faulty{Plane: p, rate: rate, rng: rand.New(rand.NewPCG(seed, 0))}
}

// SetRate changes the rate; 0 disables faults.
func (f *Faulty) SetRate(rate float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rate = rate
}

// upTo returns how many of n elements of a call take effect, and whether it fails.
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

// Check implements proxy.Plane.
func (f *Faulty) Check(ctx context.Context) error {
	if _, fails := f.upTo(0); fails {
		return ErrFault
	}
	return f.Plane.Check(ctx)
}

// SetNodeAddresses implements proxy.Plane.
func (f *Faulty) SetNodeAddresses(addrs []netip.Addr) error {
	if _, fails := f.upTo(0); fails {
		return ErrFault
	}
	return f.Plane.SetNodeAddresses(addrs)
}
