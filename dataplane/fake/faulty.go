package fake

import (
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// ErrFault is the error of an injected fault.
var ErrFault = errors.New("injected fault")

// Faulty makes calls to another data plane fail: half of them before they take effect,
// half after.
type Faulty struct {
	dataplane.DataPlane
	mu   sync.Mutex
	rate float64
	rng  *rand.Rand
}

// NewFaulty wraps d so that calls fail at the given rate (0.1 is one in ten). The same
// seed gives the same failures.
func NewFaulty(d dataplane.DataPlane, rate float64, seed uint64) *Faulty {
	return &Faulty{DataPlane: d, rate: rate, rng: rand.New(rand.NewPCG(seed, 0))}
}

// SetRate changes the rate; 0 disables faults.
func (f *Faulty) SetRate(rate float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rate = rate
}

func (f *Faulty) call(do func() error) error {
	f.mu.Lock()
	fail, late := f.rng.Float64() < f.rate, f.rng.IntN(2) == 0
	f.mu.Unlock()
	if fail && !late {
		return ErrFault
	}
	err := do()
	if fail && err == nil {
		return ErrFault
	}
	return err
}

// List implements dataplane.DataPlane.
func (f *Faulty) List() (list []desired.Frontend, err error) {
	err = f.call(func() (err error) { list, err = f.DataPlane.List(); return err })
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Upsert implements dataplane.DataPlane.
func (f *Faulty) Upsert(want desired.Frontend) error {
	return f.call(func() error { return f.DataPlane.Upsert(want) })
}

// Delete implements dataplane.DataPlane.
func (f *Faulty) Delete(k service.Key) error {
	return f.call(func() error { return f.DataPlane.Delete(k) })
}
