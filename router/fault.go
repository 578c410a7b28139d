package router

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/wake"
)

// retryFirst is the backoff after the first failure of a route; it doubles with each
// failure, up to resyncEvery.
const retryFirst = 100 * time.Millisecond

// Fault is a prefix whose route in the kernel is not as desired.
type Fault struct {
	Prefix netip.Prefix
	// Err names the next hop or the object, and includes the kernel's message.
	Err error
	// Since is when the first of Tries consecutive failures occurred.
	Since time.Time
	Tries int
	due   time.Time // the next retry; zero: only at the next change
}

// backoff returns the pause after that many consecutive failures.
func backoff(tries int) time.Duration {
	return min(retryFirst<<min(tries-1, 10), resyncEvery)
}

// settle records the results of the prefixes that were tried; nil means success.
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
		t.c.Log.Warn("more routes changed their state, see the status", "degraded", len(t.faults))
	}
	if len(t.faults) > 0 {
		t.notify()
	}
}

func (t *Table) logFault(p netip.Prefix, was *Fault, err error, now time.Time) {
	if err == nil {
		t.c.Log.Info("route updated after a failure", "prefix", p, "after", now.Sub(was.Since).Round(time.Millisecond))
		return
	}
	t.c.Log.Warn("failed to update a route, will retry", "prefix", p, slog.Any("error", err))
}

// settleFailed records an error that concerns no single prefix.
func (t *Table) settleFailed(err error) {
	if err != nil && (t.failed == nil || t.failed.Error() != err.Error()) {
		t.c.Log.Warn("failed to update the kernel routing table, will retry", slog.Any("error", err))
	}
	t.failed = err
}

// notify wakes Keep or Follow to check when the next retry is due.
func (t *Table) notify() {
	wake.Up(t.wake)
}

// nextRetry returns how long to wait for the next retry, at most limit.
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

// Failed returns why reading the kernel or removing superfluous objects last failed,
// which concerns no single prefix; nil if it succeeded.
func (t *Table) Failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// namedFaults limits the prefixes that one error names, and that one pass logs.
const namedFaults = 10

// err returns everything that keeps the kernel from the desired state.
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
