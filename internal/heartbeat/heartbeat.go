// Package heartbeat notices loops that are stuck, for liveness probes.
package heartbeat

import (
	"fmt"
	"sync"
	"time"
)

// DefaultLimit is longer than any round of a loop takes on a slow machine with many objects.
const DefaultLimit = 5 * time.Minute

// Rounds has the rounds that the loops of a process are in. A loop without work is in none.
// The zero value is ready for use; nil watches nothing.
type Rounds struct {
	// Limit is how long a round may take; 0 means DefaultLimit.
	Limit time.Duration

	mu      sync.Mutex
	running map[*round]struct{}
}

type round struct {
	loop  string
	began time.Time
}

// Begin notes that a loop begins a round; the result, that it has ended it.
func (r *Rounds) Begin(loop string) (end func()) {
	if r == nil {
		return func() {}
	}
	one := &round{loop, time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[*round]struct{}{}
	}
	r.running[one] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, one)
	}
}

// Stuck returns which loop has been in the same round for longer than Limit, or nil.
func (r *Rounds) Stuck() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	var oldest *round
	for one := range r.running {
		if oldest == nil || one.began.Before(oldest.began) {
			oldest = one
		}
	}
	if oldest == nil || time.Since(oldest.began) < limit {
		return nil
	}
	return fmt.Errorf("%s: no progress for %s", oldest.loop, time.Since(oldest.began).Round(time.Second))
}
