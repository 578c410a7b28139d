// Package store stores the state of a domain's networks. A change is in its backend
// (vdn/store/file, vdn/store/etcd) before the call returns, and survives a crash at any
// time. Changes of one process are serialized; if another process that shares the backend
// commits first, a change is computed again from the new state. Reads come from memory,
// which follows the backend.
//
// Arguments and results are shared: they must not be modified.
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

// Store is an open store. Its methods are safe for concurrent use.
type Store struct {
	backend kv.Backend
	domain  string
	log     *slog.Logger
	// writing is a semaphore that serializes changes.
	writing chan struct{}
	stop    context.CancelFunc
	done    sync.WaitGroup

	// mu guards the following fields, and is held only briefly.
	mu      sync.RWMutex
	mem     *memory
	changed chan struct{} // closed at each change
	broken  error         // why the store has stopped permanently
	trouble error         // why the backend last failed
}

// Options configure a Store.
type Options struct {
	// Backend is owned by the Store from New on, even if New fails.
	Backend kv.Backend
	// Domain is the name of the domain.
	Domain string
	Log    *slog.Logger // nil means slog.Default()
}

// Open opens the store in a directory, which it creates if needed.
func Open(folder, domain string) (*Store, error) {
	backend, err := file.Open(folder)
	if err != nil {
		return nil, err
	}
	return New(context.Background(), Options{Backend: backend, Domain: domain})
}

// New reads the backend's content, and follows it until Close. ctx only limits the reading.
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

// Close closes the store after changes in progress have finished.
func (s *Store) Close() error {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	s.stop()
	s.done.Wait()
	s.mu.Lock()
	s.broken = errors.New("the store is closed: retry when the controller is running")
	s.mu.Unlock()
	return s.backend.Close()
}

// load reads everything and replaces the memory, unless that has become newer by then:
// batches committed meanwhile are applied to it. If the state is older than the memory was
// before, it was restored from a backup, and every process must follow.
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
		s.log.Error("vdn store: the state is older than before: was it restored from a copy?", "revision", snapshot.Revision, "before", before)
	} else if s.backend.Shared() && snapshot.Revision < s.mem.revision {
		return snapshot, nil
	}
	s.mem = m
	s.notify()
	return snapshot, nil
}

// notify wakes waiting callers. The caller holds the lock.
func (s *Store) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Retry pauses of follow.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// follow keeps the memory up to date with the backend, which others may change.
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

// note records whether the backend works.
func (s *Store) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
}

// errGap means that batches are missing.
var errGap = errors.New("missing batches")

// take applies a batch to the memory, unless it is already applied.
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
	s.notify()
	return nil
}

// Err returns why nothing can be changed at present, or nil.
func (s *Store) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.broken != nil {
		return s.broken
	}
	return s.trouble
}

// Domain returns the name of the domain.
func (s *Store) Domain() string { return s.domain }

// Revision grows with each change. It falls only if the backend is restored from a backup.
func (s *Store) Revision() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mem.revision
}

// Wait waits until the revision differs from the given one, or ctx ends, and returns the
// current one.
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

// State returns a consistent state with the attachments of a node; "" for all.
func (s *Store) State(node string) (vdn.State, []vdn.Attachment) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mem.state(s.domain), s.mem.list("", node)
}

// Lead calls run while this process is the leader of those that share the state, until ctx
// ends. id identifies it.
func (s *Store) Lead(ctx context.Context, id string, run func(ctx context.Context)) {
	s.backend.Lead(ctx, id, run)
}
