package router

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// retryFirst is the pause after a route failed for the first time; it doubles with
// each failure, up to resyncEvery.
const retryFirst = 100 * time.Millisecond

// Fault is a prefix whose route in the kernel is not as desired.
type Fault struct {
	Prefix netip.Prefix
	// Err names the next hop or the object, and has the kernel's words.
	Err error
	// Since is when the first of Tries failed; they have failed without a success
	// in between.
	Since time.Time
	Tries int
	due   time.Time // the next try; zero: at the next change alone
}

// backoff is the pause after so many failures in a row.
func backoff(tries int) time.Duration {
	return min(retryFirst<<min(tries-1, 10), resyncEvery)
}

// settle records what became of the prefixes that were tried; nil is success.
func (t *Table) settle(tried map[netip.Prefix]error, now time.Time) {
	logged := 0
	for _, p := range slices.SortedFunc(maps.Keys(tried), netip.Prefix.Compare) {
		err, f := tried[p], t.faults[p]
		if err == nil && f == nil {
			continue
		}
		changed := err == nil || f == nil || f.Err.Error() != err.Error()
		if changed && logged < namedFaults {
			t.logFault(p, f, err, now)
			logged++
		}
		if err == nil {
			delete(t.faults, p)
			continue
		}
		next := Fault{Prefix: p, Err: err, Since: now, Tries: 1}
		if f != nil {
			next.Since, next.Tries = f.Since, f.Tries+1
		}
		next.due = now.Add(backoff(next.Tries))
		t.faults[p] = &next
	}
	if logged == namedFaults {
		t.c.Log.Warn("more routes have changed their state; the status names them", "degraded", len(t.faults))
	}
	if len(t.faults) > 0 {
		t.poke()
	}
}

func (t *Table) logFault(p netip.Prefix, was *Fault, err error, now time.Time) {
	if err == nil {
		t.c.Log.Info("route is as desired again", "prefix", p, "after", now.Sub(was.Since).Round(time.Millisecond))
		return
	}
	t.c.Log.Warn("route is not as desired; the others are not affected, will retry", "prefix", p, slog.Any("error", err))
}

// settleFailed records what concerns no single prefix.
func (t *Table) settleFailed(err error) {
	if err != nil && (t.failed == nil || t.failed.Error() != err.Error()) {
		t.c.Log.Warn("the kernel's table is not as desired, will retry", slog.Any("error", err))
	}
	t.failed = err
}

// poke has Keep or Follow look when the next retry is due.
func (t *Table) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// nextRetry is how long to wait for the next retry; at most limit.
func (t *Table) nextRetry(now time.Time, limit time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.faults {
		limit = min(limit, max(0, f.due.Sub(now)))
	}
	return limit
}

// Faults lists the prefixes whose routes are not as desired, sorted.
func (t *Table) Faults() []Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Fault
	for _, f := range t.faults {
		all = append(all, *f)
	}
	for p, err := range t.hidden {
		all = append(all, Fault{Prefix: p, Err: err})
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return a.Prefix.Compare(b.Prefix) })
	return all
}

// Failed is why reading the kernel or removing what is no longer needed last
// failed, which concerns no single prefix; nil where it did not.
func (t *Table) Failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// namedFaults is how many prefixes one error names, and one pass logs.
const namedFaults = 10

// err is all that keeps the kernel from being as desired.
func (t *Table) err() error {
	errs := []error{t.failed}
	for _, p := range slices.SortedFunc(maps.Keys(t.faults), netip.Prefix.Compare) {
		if len(errs) > namedFaults {
			errs = append(errs, fmt.Errorf("and %d other prefixes", len(t.faults)-namedFaults))
			break
		}
		errs = append(errs, fmt.Errorf("%s: %w", p, t.faults[p].Err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fib: %w", err)
	}
	return nil
}
