// Package keyed is the engine that the reconciling loops share. A Tracker records which
// keys of an actual state are not as desired, why, and when to try each of them again. The
// loop knows what is desired and makes the calls; a key that is as desired costs nothing.
//
// A loop that learns of changes one by one calls Touch for each, Take for what to write,
// and Settle with the result. A loop that compares everything asks Ready for each
// difference and calls Set with each result. Neither begins before its source has loaded.
package keyed

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// Backoff after failures: doubled from First to Last.
const (
	First = 100 * time.Millisecond
	Last  = 10 * time.Second
)

// Backoff returns the pause after that many consecutive failures.
func Backoff(tries int) time.Duration { return min(First<<min(tries-1, 10), Last) }

// Retry is a series of consecutive failures; the zero value is none.
type Retry struct {
	Err error
	// Since is when the first of Tries failures occurred.
	Since time.Time
	Tries int
	// Due is when to try again; zero after a failure: not before the desired value changes.
	Due time.Time
}

// Settle records a result; nil ends the series.
func (r *Retry) Settle(err error, now time.Time) {
	if err == nil {
		*r = Retry{}
		return
	}
	if r.Tries++; r.Tries == 1 {
		r.Since = now
	}
	r.Err, r.Due = err, now.Add(Backoff(r.Tries))
}

// Sooner returns the earlier time. Zero means never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Phase is why a key is not as desired. The zero value: it is, or was not tried yet.
type Phase uint8

// Phases of a key with a record.
const (
	Failing  Phase = iota + 1 // the last call failed: the actual state is unknown
	Rejected                  // what is there stays, and nothing else is affected
)

// State is the record of a key that is not as desired.
type State[V any] struct {
	Retry
	Phase Phase
	Want  V // what failed or was rejected
}

// Tracker records the keys that are not as desired. At first and after TouchAll, the
// actual state of all keys is unknown.
type Tracker[K comparable, V any] struct {
	// Same compares two desired values, for Ready.
	Same func(a, b V) bool
	// IsRejection reports whether an error is a rejection of its key; nil: none is. It
	// rests until its desired value changes or, with RetryRejected, only for the backoff.
	IsRejection   func(error) bool
	RetryRejected bool

	states map[K]State[V]
	counts [Rejected + 1]int
	// next is when the first key is due, unless it is stale.
	next  time.Time
	stale bool
	// fresh holds the keys touched since the last Take, which returned writing keys.
	fresh   map[K]struct{}
	writing int
	// known means that everything was written since the last TouchAll, taken that this
	// was tried; whole are its failures.
	known, taken bool
	whole        Retry
}

// Touch records that the desired value of a key changed. It reports false if that needs no record,
// because the next Take asks for everything.
func (t *Tracker[K, V]) Touch(k K) bool {
	if !t.known && !t.taken {
		return false
	}
	if t.fresh == nil { // clearing a map costs as much as its largest size ever
		t.fresh = map[K]struct{}{}
	}
	t.fresh[k] = struct{}{}
	return true
}

// TouchAll records that the actual state of all keys is unknown.
func (t *Tracker[K, V]) TouchAll() { t.known, t.taken, t.whole = false, false, Retry{} }

// Take returns the keys to write now, or that everything is to be written and the rest
// deleted. When a failed key is due, those come along that have waited for half of their
// backoff: keys that failed one after another soon share their calls.
func (t *Tracker[K, V]) Take(now time.Time) (keys []K, all bool) {
	if !t.known && !now.Before(t.whole.Due) {
		t.fresh, t.taken = nil, true
		return nil, true
	}
	if due := t.Due(); !due.IsZero() && !now.Before(due) {
		for k, s := range t.states {
			if !s.Due.IsZero() && s.Due.Sub(now) <= Backoff(s.Tries)/2 {
				t.Touch(k)
			}
		}
	}
	keys = slices.Collect(maps.Keys(t.fresh))
	t.fresh, t.writing = nil, len(keys)
	return keys, false
}

// Settle records the result for what Take returned: errors of single keys, and err for all
// others; nil means success.
func (t *Tracker[K, V]) Settle(keys []K, all bool, errs map[K]error, err error, now time.Time) {
	if all {
		t.whole.Settle(err, now)
		t.known = err == nil && t.taken
		t.Drop(func(k K, _ V) bool { return errs[k] == nil })
		keys, err = slices.Collect(maps.Keys(errs)), nil
	}
	var none V
	for _, k := range keys {
		t.Set(k, none, cmp.Or(errs[k], err), now)
	}
	t.writing = 0
}

// Ready reports whether to try a key now that is not as desired.
func (t *Tracker[K, V]) Ready(k K, want V, now time.Time) bool {
	s, tried := t.states[k]
	return !tried || !t.Same(s.Want, want) || !s.Due.IsZero() && !now.Before(s.Due)
}

// Set records the result of a call for a key.
func (t *Tracker[K, V]) Set(k K, want V, err error, now time.Time) {
	s, phase := t.states[k], Failing
	if t.Done(k); err == nil {
		return
	}
	if t.IsRejection != nil && t.IsRejection(err) {
		phase = Rejected
	}
	if s.Phase != phase {
		s.Retry = Retry{}
	}
	s.Phase, s.Want = phase, want
	if s.Settle(err, now); phase == Rejected && !t.RetryRejected {
		s.Due = time.Time{}
	}
	if t.states == nil {
		t.states = map[K]State[V]{}
	}
	t.states[k], t.next = s, Sooner(t.next, s.Due)
	t.counts[phase]++
}

// Done records that a key is as desired.
func (t *Tracker[K, V]) Done(k K) {
	if len(t.states) == 0 {
		return // without copying a record for each key that is as desired
	}
	if s, tried := t.states[k]; tried {
		delete(t.states, k)
		t.counts[s.Phase]--
		t.stale = t.stale || s.Due.Equal(t.next)
	}
}

// Drop removes the records that are outdated.
func (t *Tracker[K, V]) Drop(outdated func(k K, want V) bool) {
	for k, s := range t.states {
		if outdated(k, s.Want) {
			t.Done(k)
		}
	}
}

// Due returns when the next retry is due; zero: none is.
func (t *Tracker[K, V]) Due() time.Time {
	if t.stale {
		t.next, t.stale = time.Time{}, false
		for _, s := range t.states {
			t.next = Sooner(t.next, s.Due)
		}
	}
	return Sooner(t.next, t.whole.Due)
}

// IsKnown reports whether all keys are as desired that are not pending or recorded.
func (t *Tracker[K, V]) IsKnown() bool { return t.known }

// Pending returns how many keys have changed and are not written.
func (t *Tracker[K, V]) Pending() int { return len(t.fresh) + t.writing }

// Count returns how many records are in a phase.
func (t *Tracker[K, V]) Count(p Phase) int { return t.counts[p] }

// State returns the record of a key; the zero value: it has none.
func (t *Tracker[K, V]) State(k K) State[V] { return t.states[k] }

// All returns the records.
func (t *Tracker[K, V]) All() iter.Seq2[K, State[V]] { return maps.All(t.states) }
