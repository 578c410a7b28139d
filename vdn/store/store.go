// Package store keeps the state of a domain's networks: what it answers is kept by
// its backend before (vdn/store/file, vdn/store/etcd), and survives the process at any
// moment. Changes of one process are serial; those of several processes that share a
// backend are made again for the state that another has left. What is read comes from
// memory, which follows the backend.
//
// What it takes and gives is shared: nobody may change it.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store/file"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// Store is an open store. Its methods may be called concurrently.
type Store struct {
	backend kv.Backend
	domain  string
	log     *slog.Logger
	// writing has room for the one who changes something.
	writing chan struct{}
	stop    context.CancelFunc
	done    sync.WaitGroup

	// mu guards what follows, and is held only for moments.
	mu      sync.RWMutex
	mem     *memory
	changed chan struct{} // closed at each change
	broken  error         // why nothing more is taken, for good
	trouble error         // why the backend could not be used the last time
}

// Options are what a Store is made of.
type Options struct {
	// Backend is the Store's from New on, also where New fails.
	Backend kv.Backend
	// Domain is whose networks they are.
	Domain string
	Log    *slog.Logger // slog.Default() where nil
}

// Open opens the store in a folder, which it makes where there is none.
func Open(folder, domain string) (*Store, error) {
	backend, err := file.Open(folder)
	if err != nil {
		return nil, err
	}
	return New(context.Background(), Options{Backend: backend, Domain: domain})
}

// New reads what the backend keeps, and follows it until Close. ctx is for the
// reading.
func New(ctx context.Context, o Options) (*Store, error) {
	s := &Store{backend: o.Backend, domain: o.Domain, log: o.Log, writing: make(chan struct{}, 1), changed: make(chan struct{}), mem: &memory{}}
	if s.log == nil {
		s.log = slog.Default()
	}
	snapshot, err := s.load(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store: %w", err), s.backend.Close())
	}
	ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(func() { s.follow(ctx, snapshot) })
	return s, nil
}

// Close ends it; changes under way are done first.
func (s *Store) Close() error {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	s.stop()
	s.done.Wait()
	s.mu.Lock()
	s.broken = errors.New("the store is closed: ask again once the controller is back")
	s.mu.Unlock()
	return s.backend.Close()
}

// load reads everything, and has the memory be that, unless it is newer by then: what
// is committed meanwhile is taken into it. A state that is older than the memory was
// before has been put back to what it was, and every process has to go back, too.
func (s *Store) load(ctx context.Context) (kv.Snapshot, error) {
	before := s.Revision()
	snapshot, err := s.backend.Load(ctx)
	if err != nil {
		s.note(err)
		return snapshot, err
	}
	m, err := remember(snapshot)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble = err; err != nil {
		return snapshot, err
	}
	if snapshot.Revision < before {
		s.log.Error("vdn store: the state has gone back: was it restored from a copy?", "revision", snapshot.Revision, "before", before)
	} else if s.backend.Shared() && snapshot.Revision < s.mem.revision {
		return snapshot, nil
	}
	s.mem = m
	s.tell()
	return snapshot, nil
}

// tell wakes those who wait. The lock is held.
func (s *Store) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Pauses of who follows.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// follow keeps the memory as the backend is, which others may change.
func (s *Store) follow(ctx context.Context, snapshot kv.Snapshot) {
	for wait := firstPause; ; {
		err := s.backend.Follow(ctx, snapshot, func(b kv.Batch) error {
			wait = firstPause
			return s.take(b)
		})
		for ctx.Err() == nil {
			s.note(err)
			sleep.For(ctx, wait)
			wait = min(2*wait, mostPause)
			if snapshot, err = s.load(ctx); err == nil {
				break
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// note remembers whether the backend can be used.
func (s *Store) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
}

// errGap says that batches are missing.
var errGap = errors.New("batches are missing")

// take puts a batch into the memory; one that is there already changes nothing.
func (s *Store) take(b kv.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case b.Revision <= s.mem.revision:
		return nil
	case b.Revision != s.mem.revision+1:
		return fmt.Errorf("%w between revision %d and %d", errGap, s.mem.revision, b.Revision)
	}
	if err := s.mem.apply(b); err != nil {
		return err
	}
	s.trouble = nil
	s.tell()
	return nil
}

// Err is why nothing can be changed now; nil where all is well.
func (s *Store) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.broken != nil {
		return s.broken
	}
	return s.trouble
}

// Domain is whose networks they are.
func (s *Store) Domain() string { return s.domain }

// Revision grows with each change, and never falls.
func (s *Store) Revision() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mem.revision
}

// Wait waits until the revision is another than the one named, or ctx ends; it
// gives the present one.
func (s *Store) Wait(ctx context.Context, after uint64) uint64 {
	for {
		s.mu.RLock()
		now, changed := s.mem.revision, s.changed
		s.mu.RUnlock()
		if now != after {
			return now
		}
		select {
		case <-ctx.Done():
			return now
		case <-changed:
		}
	}
}

// State is everything at one moment; of the attachments those of a node, of all where
// "".
func (s *Store) State(node string) (vdn.State, []vdn.Attachment) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mem.state(s.domain), s.mem.list("", node)
}

// Lead runs a function while this process is, of all that share the state, the one
// that leads, until ctx ends. id names it.
func (s *Store) Lead(ctx context.Context, id string, run func(ctx context.Context)) {
	s.backend.Lead(ctx, id, run)
}
