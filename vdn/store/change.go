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
	// early may be written before the rest, piece by piece, and stands by itself.
	early []kv.Put
	puts  []kv.Put
	// sure says that nothing is to be written even if the memory is a little old.
	sure bool
	// overtake has a batch made also where nothing is to be written, so that none can
	// follow that was begun before.
	overtake bool
}

// add writes a value as JSON, which the model's types always can be.
func (e *edit) add(bucket, key string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("store: %T: %v", value, err))
	}
	e.puts = append(e.puts, kv.Put{Bucket: bucket, Key: key, Value: b})
}

func (e *edit) drop(bucket, key string) { e.puts = append(e.puts, kv.Put{Bucket: bucket, Key: key}) }

// plan says what is to be written, of the state as it is. It may be asked again, for
// another state, and must change nothing else.
type plan func(m *memory) (edit, error)

// change makes what a plan says. Where another process was faster, the plan is asked
// again for what that has made of the state; so is a plan that refuses, or has nothing
// to do, for a state that may be old. A backend that cannot be reached is tried again
// for a while.
func (s *Store) change(ctx context.Context, p plan) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return fmt.Errorf("who asked has gone: %w", ctx.Err())
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

// How long, and how often, a backend that cannot be reached is asked again; then who
// asked may find another process.
const (
	mostTries    = 2500 * time.Millisecond
	betweenTries = 30 * time.Millisecond
)

// attempt asks the plan once. Without an error and not done, it is to be asked again of
// a state that is up to date.
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

// drafted is a batch, after which there is more to do of the same edit.
type drafted struct {
	kv.Batch
	more bool
}

// draft asks a plan; nil where there is nothing to write, which may be sure.
func (s *Store) draft(ctx context.Context, p plan) (d *drafted, sure bool, err error) {
	s.mu.Lock() // choosing addresses moves the pools' hands
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, true, s.broken
	}
	if !s.backend.Shared() && s.trouble != nil {
		return nil, true, s.trouble
	}
	if err := ctx.Err(); err != nil {
		return nil, true, fmt.Errorf("who asked has gone: %w", err)
	}
	e, err := p(s.mem)
	if err != nil || len(e.early)+len(e.puts) == 0 && !(e.overtake && s.backend.Shared()) {
		return nil, e.sure, err
	}
	d = &drafted{Batch: kv.Batch{Revision: s.mem.revision + 1, Writer: rand.Text(), Puts: append(e.early, e.puts...)}}
	if most := s.backend.MaxPuts(); most > 0 && len(d.Puts) > most {
		if len(e.early) == 0 {
			return nil, true, fmt.Errorf("the store takes %d values at once, and this change has %d: make a smaller one", most, len(e.puts))
		}
		d.Puts, d.more = e.early[:min(most, len(e.early))], true
	}
	return d, false, nil
}

// commit makes a batch the state's next: kept, then in memory. kv.ErrConflict says
// that the plan is to be asked again.
func (s *Store) commit(ctx context.Context, d drafted) error {
	err := s.backend.Commit(ctx, d.Batch)
	if err == nil {
		if err := s.take(d.Batch); err != nil {
			s.log.Error("vdn store: a change that is kept does not go with what is in memory; all is read again", "error", err)
			_, err = s.load(ctx)
			return err
		}
		return nil
	}
	if errors.Is(err, kv.ErrConflict) {
		return err
	}
	// Whether it is kept is not known: what is there counts.
	snapshot, loadErr := s.load(ctx)
	switch {
	case loadErr != nil && !s.backend.Shared():
		return s.end(loadErr)
	case loadErr != nil:
		return fmt.Errorf("%w; whether this change is kept is not known: ask again", err)
	case snapshot.Revision == d.Revision && snapshot.Writer == d.Writer:
		return nil
	case errors.Is(err, kv.ErrUnavailable):
		return kv.ErrConflict // asked again, or given up with ctx
	}
	return fmt.Errorf("the store cannot be written: %w: see to its disk", err)
}

// end has nothing more taken, and says why.
func (s *Store) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = fmt.Errorf("the store cannot be read: %w", err)
	return s.broken
}

// patience is how long what was committed may take to be followed, before everything
// is read again.
const patience = 500 * time.Millisecond

// Sync has the memory hold all that was committed before the call, by whomever.
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

// reaches waits for a revision for a moment.
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
