// Package fake stores a state in memory, for tests, with optional faults. Several backends
// can share one state, as several processes would.
package fake

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/vdn/store/kv"
)

// State is what backends share.
type State struct {
	mu      sync.Mutex
	values  map[string]map[string][]byte
	batches []kv.Batch // batches[i] made revision i+1
	changed chan struct{}
	leader  chan struct{}
	max     int
}

// New creates an empty State with a limit of puts per batch; 0 for no limit.
func New(maxPuts int) *State {
	s := &State{values: map[string]map[string][]byte{}, changed: make(chan struct{}), leader: make(chan struct{}, 1), max: maxPuts}
	for _, name := range kv.Buckets {
		s.values[name] = map[string][]byte{}
	}
	return s
}

// Faults are probabilities of faults, in percent.
type Faults struct {
	// Lost: a commit fails and has no effect. Unknown: it fails but takes effect. Late: it
	// fails and takes effect later, if nothing else was committed meanwhile.
	Lost, Unknown, Late int
	// Cut: Follow ends. Away: requests fail.
	Cut, Away int
}

// Backend is one process's access to a State.
type Backend struct {
	*State
	faults Faults
	mu     sync.Mutex
	random *rand.Rand
	late   sync.WaitGroup
}

var _ kv.Backend = (*Backend)(nil)

// Open returns a backend with faults; seed makes them reproducible.
func (s *State) Open(f Faults, seed uint64) *Backend {
	return &Backend{State: s, faults: f, random: rand.New(rand.NewPCG(seed, 1))}
}

// unlucky reports whether a fault of this probability happens.
func (b *Backend) unlucky(percent int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return percent > b.random.IntN(100)
}

func unavailable(what string) error {
	return fmt.Errorf("%w: %s fails on request", kv.ErrUnavailable, what)
}

// Load implements kv.Backend.
func (b *Backend) Load(context.Context) (s kv.Snapshot, err error) {
	if b.unlucky(b.faults.Away) {
		return s, unavailable("load")
	}
	b.State.mu.Lock()
	defer b.State.mu.Unlock()
	s.Revision = uint64(len(b.batches))
	if s.Revision > 0 {
		s.Writer = b.batches[s.Revision-1].Writer
	}
	s.At = int64(s.Revision)
	for _, name := range kv.Buckets {
		for _, key := range slices.Sorted(maps.Keys(b.values[name])) {
			s.Puts = append(s.Puts, kv.Put{Bucket: name, Key: key, Value: b.values[name][key]})
		}
	}
	return s, nil
}

// Commit implements kv.Backend.
func (b *Backend) Commit(_ context.Context, batch kv.Batch) error {
	switch {
	case b.unlucky(b.faults.Lost):
		return unavailable("commit")
	case b.unlucky(b.faults.Late):
		b.late.Go(func() {
			time.Sleep(time.Millisecond)
			_ = b.commit(batch) // another commit may have been faster
		})
		return unavailable("commit")
	}
	err := b.commit(batch)
	if err == nil && b.unlucky(b.faults.Unknown) {
		return unavailable("the answer to a commit")
	}
	return err
}

func (s *State) commit(batch kv.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if batch.Revision != uint64(len(s.batches))+1 {
		return kv.ErrConflict
	}
	if s.max > 0 && len(batch.Puts) > s.max {
		return fmt.Errorf("%d puts: at most %d are taken", len(batch.Puts), s.max)
	}
	for _, p := range batch.Puts {
		if was, there := s.values[p.Bucket][p.Key]; p.Fresh && there {
			return fmt.Errorf("%s is of %s already", p.Key, was)
		}
	}
	for _, p := range batch.Puts {
		if p.Value == nil {
			delete(s.values[p.Bucket], p.Key)
		} else {
			s.values[p.Bucket][p.Key] = p.Value
		}
	}
	s.batches = append(s.batches, batch)
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Revision implements kv.Backend.
func (b *Backend) Revision(context.Context) (uint64, error) {
	if b.unlucky(b.faults.Away) {
		return 0, unavailable("revision")
	}
	b.State.mu.Lock()
	defer b.State.mu.Unlock()
	return uint64(len(b.batches)), nil
}

// Follow implements kv.Backend.
func (b *Backend) Follow(ctx context.Context, after kv.Snapshot, do func(kv.Batch) error) error {
	for at := after.At; ; {
		b.State.mu.Lock()
		fresh, changed := b.batches[at:], b.changed
		b.State.mu.Unlock()
		for _, batch := range fresh {
			if b.unlucky(b.faults.Cut) {
				return unavailable("follow")
			}
			if err := do(batch); err != nil {
				return err
			}
			at++
		}
		if len(fresh) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Lead implements kv.Backend.
func (b *Backend) Lead(ctx context.Context, _ string, run func(context.Context)) {
	select {
	case <-ctx.Done():
		return
	case b.leader <- struct{}{}:
	}
	run(ctx)
	<-b.leader
}

// Shared implements kv.Backend.
func (b *Backend) Shared() bool { return true }

// MaxPuts implements kv.Backend.
func (b *Backend) MaxPuts() int { return b.max }

// Close implements kv.Backend.
func (b *Backend) Close() error {
	b.late.Wait()
	return nil
}
