package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// edit is what one call writes.
type edit struct {
	// early may be committed before the rest, in parts, and is valid by itself.
	early []kv.Put
	puts  []kv.Put
	// sure means that an empty edit is final even if the memory is slightly stale.
	sure bool
	// overtake commits a batch even if there is nothing to write, so that no earlier
	// attempt can be committed afterwards.
	overtake bool
}

// add adds a value as JSON. The model's types always encode.
func (e *edit) add(bucket, key string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("store: %T: %v", value, err))
	}
	e.puts = append(e.puts, kv.Put{Bucket: bucket, Key: key, Value: b})
}

func (e *edit) drop(bucket, key string) { e.puts = append(e.puts, kv.Put{Bucket: bucket, Key: key}) }

// plan computes what to write from the current state. It may be called again with another
// state, and must have no side effects.
type plan func(m *memory) (edit, error)

// change commits the edit of a plan. If another process commits first, the plan is called
// again with the new state. A plan that rejects, or has nothing to do, is called again if
// the state may have been stale. An unreachable backend is retried for a while.
func (s *Store) change(ctx context.Context, p plan) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return fmt.Errorf("the client has disconnected: %w", ctx.Err())
	}
	current, until := !s.backend.Shared(), time.Now().Add(mostTries)
	for {
		done, err := s.attempt(ctx, p, current)
		if err == nil && !done {
			err = s.Sync(ctx)
			current = err == nil
		}
		switch {
		case done && err == nil:
			return nil
		case errors.Is(err, kv.ErrUnavailable) && ctx.Err() == nil && time.Now().Before(until):
			sleep.For(ctx, betweenTries)
		case err != nil:
			return err
		}
	}
}

// Duration and interval of retries while the backend is unreachable; then the client may
// try another controller.
const (
	mostTries    = 2500 * time.Millisecond
	betweenTries = 30 * time.Millisecond
)

// attempt calls the plan once. If it returns false without an error, the plan must be
// called again with an up-to-date state.
func (s *Store) attempt(ctx context.Context, p plan, current bool) (done bool, err error) {
	for {
		batch, sure, err := s.draft(ctx, p)
		if batch == nil {
			if current || sure {
				return true, err
			}
			return false, nil
		}
		err = s.commit(ctx, *batch)
		if errors.Is(err, kv.ErrConflict) {
			return false, nil
		}
		if err != nil || !batch.more {
			return err == nil, err
		}
	}
}

// drafted is a batch; more means that another part of the same edit follows.
type drafted struct {
	kv.Batch
	more bool
}

// draft calls a plan and builds a batch; nil if there is nothing to write, which may be
// final (sure).
func (s *Store) draft(ctx context.Context, p plan) (d *drafted, sure bool, err error) {
	s.mu.Lock() // choosing addresses modifies the pools
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, true, s.broken
	}
	if !s.backend.Shared() && s.trouble != nil {
		return nil, true, s.trouble
	}
	if err := ctx.Err(); err != nil {
		return nil, true, fmt.Errorf("the client has disconnected: %w", err)
	}
	e, err := p(s.mem)
	if err != nil || len(e.early)+len(e.puts) == 0 && !(e.overtake && s.backend.Shared()) {
		return nil, e.sure, err
	}
	d = &drafted{Batch: kv.Batch{Revision: s.mem.revision + 1, Writer: rand.Text(), Puts: append(e.early, e.puts...)}}
	if most := s.backend.MaxPuts(); most > 0 && len(d.Puts) > most {
		if len(e.early) == 0 {
			return nil, true, fmt.Errorf("the store accepts %d values at once, and this change has %d: use a smaller one", most, len(e.puts))
		}
		d.Puts, d.more = e.early[:min(most, len(e.early))], true
	}
	return d, false, nil
}

// commit commits a batch to the backend and then applies it to memory. kv.ErrConflict means
// that the plan must be called again.
func (s *Store) commit(ctx context.Context, d drafted) error {
	err := s.backend.Commit(ctx, d.Batch)
	if err == nil {
		if err := s.take(d.Batch); err != nil {
			s.log.Error("vdn store: a stored change contradicts the state in memory, reloading", "error", err)
			_, err = s.load(ctx)
			return err
		}
		return nil
	}
	if errors.Is(err, kv.ErrConflict) {
		return err
	}
	// The outcome is unknown: check the backend's state.
	snapshot, loadErr := s.load(ctx)
	switch {
	case loadErr != nil && !s.backend.Shared():
		return s.end(loadErr)
	case loadErr != nil:
		return fmt.Errorf("%w; the outcome of the change is unknown: retry", err)
	case snapshot.Revision == d.Revision && snapshot.Writer == d.Writer:
		return nil
	case errors.Is(err, kv.ErrUnavailable):
		return kv.ErrConflict // retry, or give up with ctx
	}
	return fmt.Errorf("failed to write to the store: %w: check its disk", err)
}

// end stops the store permanently, with the reason.
func (s *Store) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = fmt.Errorf("failed to read the store: %w", err)
	return s.broken
}

// patience is how long a committed revision may take to arrive before everything is read
// again.
const patience = 500 * time.Millisecond

// Sync waits until the memory has everything committed before the call, by any process.
func (s *Store) Sync(ctx context.Context) error {
	if !s.backend.Shared() {
		return nil
	}
	revision, err := s.backend.Revision(ctx)
	if err != nil {
		s.note(err)
		return fmt.Errorf("store: %w", err)
	}
	if s.reaches(ctx, revision) {
		return nil
	}
	if _, err := s.load(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// reaches waits briefly for a revision.
func (s *Store) reaches(ctx context.Context, revision uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		now := s.Revision()
		if now >= revision {
			return true
		}
		if s.Wait(ctx, now) == now {
			return false
		}
	}
}
