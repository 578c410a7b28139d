// Package keyed is the engine that the reconciling loops share. A Tracker records which
// keys of an actual state are not as desired, why, and when to try each of them again. The
// loop knows the desired state and makes the calls. A key that is as desired has no record
// and costs nothing.
//
// A loop that learns of changes one by one calls Touch for each of them, Take for the keys
// to write, and Settle with the result. A loop that compares everything in each pass asks
// Ready for each difference, and calls Set with the result of each call.
//
//   - A key that failed is tried again after its own backoff, or immediately if its wish
//     changes.
//   - A rejected key keeps the reason. Unless the Tracker has RetryRejected, it is not tried
//     again before its wish changes.
//   - At first and after TouchAll, the state of all keys is unknown: Take asks for a pass
//     over everything, which also deletes what nobody wants. It has a backoff of its own.
//
// A loop must not begin before its sources have loaded: what nobody wants is then unknown.
package keyed

import (
	"iter"
	"time"
)

// Phase is why a key is not as desired.
type Phase uint8

// Phases of a key.
const (
	Pending  Phase = iota // not tried yet
	Failing               // the last call failed: the actual state is unknown
	Rejected              // what is there stays, and nothing else is affected
)

// State is the record of a key that is not as desired.
type State[V any] struct {
	Retry
	Phase Phase
	// Want is the wish that failed or was rejected.
	Want V
	// queued means that the wish changed since the last Take.
	queued bool
}

// Tracker records the keys that are not as desired. V is a wish, if Ready is used.
type Tracker[K comparable, V any] struct {
	// Same compares two wishes; nil: only Touch reports changes.
	Same func(a, b V) bool
	// IsRejection reports whether an error is a rejection of its key; nil: none is.
	IsRejection   func(error) bool
	RetryRejected bool

	states map[K]State[V]
	counts [Rejected + 1]int
	fresh  []K // the queued keys
	// next is when the first key is due; stale means that it must be computed.
	next  time.Time
	stale bool
	// known means that a pass over everything succeeded, taken that it was tried since
	// its last request. whole are its failures.
	known, taken bool
	whole        Retry
}

// Touch records that the wish of a key changed. It reports false if that needs no record,
// because the next Take asks for everything.
func (t *Tracker[K, V]) Touch(k K) bool {
	if !t.known && !t.taken {
		return false
	}
	if s := t.states[k]; !s.queued {
		s.queued = true
		t.put(k, s)
		t.fresh = append(t.fresh, k)
	}
	return true
}

// TouchAll records that the actual state of all keys is unknown.
func (t *Tracker[K, V]) TouchAll() { t.known, t.taken, t.whole = false, false, Retry{} }

// IsKnown reports whether the actual state of the keys without a record is known.
func (t *Tracker[K, V]) IsKnown() bool { return t.known }

// Take returns the keys to write now, or that everything is to be written. When a failed
// key is due, those come along that have waited for at least half of their backoff: keys
// that failed one after another soon share their calls.
func (t *Tracker[K, V]) Take(now time.Time) (keys []K, all bool) {
	all = !t.known && t.whole.Ready(now)
	if due := t.dueKey(); !all && !due.IsZero() && !now.Before(due) {
		for k, s := range t.states {
			if !s.queued && !s.Due.IsZero() && s.Due.Sub(now) <= Backoff(s.Tries)/2 {
				s.queued = true
				t.states[k] = s
				t.fresh = append(t.fresh, k)
			}
		}
	}
	for _, k := range t.fresh {
		if s, recorded := t.states[k]; recorded {
			s.queued = false
			t.states[k] = s
		}
	}
	keys, t.fresh = t.fresh, nil
	if all {
		t.taken = true
		return nil, true
	}
	return keys, false
}

// Settle records the result for what Take returned: the errors of single keys, and err for
// all others; nil means success. It does not affect keys touched since.
func (t *Tracker[K, V]) Settle(keys []K, all bool, errs map[K]error, err error, now time.Time) {
	var none V
	if all {
		t.whole.Settle(err, now)
		t.known = err == nil && t.taken
		for k, s := range t.states {
			if !s.queued && errs[k] == nil {
				t.drop(k, s)
			}
		}
		for k, err := range errs {
			t.Set(k, none, err, now)
		}
		return
	}
	for _, k := range keys {
		if own := errs[k]; own != nil {
			t.Set(k, none, own, now)
		} else {
			t.Set(k, none, err, now)
		}
	}
}

// Ready reports whether to try a key now that is not as desired.
func (t *Tracker[K, V]) Ready(k K, want V, now time.Time) bool {
	s, known := t.states[k]
	return !known || s.queued || !t.Same(s.Want, want) || !s.Due.IsZero() && s.Ready(now)
}

// Set records the result of a call for a key.
func (t *Tracker[K, V]) Set(k K, want V, err error, now time.Time) {
	if err == nil {
		t.Done(k)
		return
	}
	s, phase, again := t.states[k], Failing, true
	if t.IsRejection != nil && t.IsRejection(err) {
		phase, again = Rejected, t.RetryRejected
	}
	if s.Phase != phase {
		s.Retry = Retry{}
	}
	s.Phase, s.Want = phase, want
	if s.Settle(err, now); !again {
		s.Due = time.Time{}
	}
	t.put(k, s)
}

// Done records that a key is as desired, as of the last Take.
func (t *Tracker[K, V]) Done(k K) {
	if s, known := t.states[k]; known {
		if t.drop(k, s); s.queued {
			t.put(k, State[V]{queued: true})
		}
	}
}

// Drop removes the records whose wish is outdated.
func (t *Tracker[K, V]) Drop(outdated func(k K, want V) bool) {
	for k, s := range t.states {
		if outdated(k, s.Want) {
			t.drop(k, s)
		}
	}
}

// put stores a record and keeps the counts.
func (t *Tracker[K, V]) put(k K, s State[V]) {
	if old, known := t.states[k]; known {
		t.drop(k, old)
	} else if t.states == nil {
		t.states = map[K]State[V]{}
	}
	t.states[k] = s
	t.counts[s.Phase]++
	if !s.Due.IsZero() && (t.next.IsZero() || s.Due.Before(t.next)) {
		t.next = s.Due
	}
}

func (t *Tracker[K, V]) drop(k K, s State[V]) {
	delete(t.states, k)
	t.counts[s.Phase]--
	t.stale = t.stale || !s.Due.IsZero() && !t.next.Before(s.Due)
}

// dueKey returns when the first failed key is due; zero: none is.
func (t *Tracker[K, V]) dueKey() time.Time {
	if t.stale {
		t.next, t.stale = time.Time{}, false
		for _, s := range t.states {
			t.next = Sooner(t.next, s.Due)
		}
	}
	return t.next
}

// Due returns when the next retry is due; zero: none is.
func (t *Tracker[K, V]) Due() time.Time { return Sooner(t.dueKey(), t.whole.Due) }

// State returns the record of a key, if it has one.
func (t *Tracker[K, V]) State(k K) (s State[V], recorded bool) {
	s, recorded = t.states[k]
	return s, recorded
}

// Count returns how many records are in a phase.
func (t *Tracker[K, V]) Count(p Phase) int { return t.counts[p] }

// In returns the records in a phase.
func (t *Tracker[K, V]) In(p Phase) iter.Seq2[K, State[V]] {
	return func(yield func(K, State[V]) bool) {
		for k, s := range t.states {
			if s.Phase == p && !yield(k, s) {
				return
			}
		}
	}
}
