package router

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/keyed"
	"github.com/fairlead/fairlead/internal/wake"
)

// Fault is a prefix whose route in the kernel is not as desired.
type Fault struct {
	Prefix netip.Prefix
	// Retry has the error, which names the next hop or the object, and includes the
	// kernel's message.
	keyed.Retry
}

// settle records the results of the prefixes that were tried; nil means success.
func (t *Table) settle(tried map[netip.Prefix]error, now time.Time) {
	logged := 0
	for _, p := range slices.SortedFunc(maps.Keys(tried), netip.Prefix.Compare) {
		err, was := tried[p], t.keys.State(p)
		t.keys.Set(p, struct{}{}, err, now)
		if ((err == nil) != (was.Err == nil) || err != nil && err.Error() != was.Err.Error()) && logged < namedFaults {
			t.logFault(p, was.Since, err, now)
			logged++
		}
	}
	if logged == namedFaults {
		t.c.Log.Warn("more routes changed their state, see the status", "degraded", t.keys.Count(keyed.Failing))
	}
	if t.keys.Count(keyed.Failing) > 0 {
		t.notify()
	}
}

func (t *Table) logFault(p netip.Prefix, since time.Time, err error, now time.Time) {
	if err == nil {
		t.c.Log.Info("route updated after a failure", "prefix", p, "took", now.Sub(since).Round(time.Millisecond))
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
	if due := t.keys.Due(); !due.IsZero() {
		limit = min(limit, max(0, due.Sub(now)))
	}
	return limit
}

// Faults lists the prefixes whose routes are not as desired, sorted.
func (t *Table) Faults() []Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.faults()
	for p, err := range t.hidden {
		all = append(all, Fault{p, keyed.Retry{Err: err}})
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return a.Prefix.Compare(b.Prefix) })
	return all
}

// faults lists the prefixes that failed, sorted.
func (t *Table) faults() (all []Fault) {
	for p, s := range t.keys.All() {
		all = append(all, Fault{p, s.Retry})
	}
	slices.SortFunc(all, func(a, b Fault) int { return a.Prefix.Compare(b.Prefix) })
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
	faults := t.faults()
	for _, f := range faults[:min(len(faults), namedFaults)] {
		errs = append(errs, fmt.Errorf("%s: %w", f.Prefix, f.Err))
	}
	if more := len(faults) - namedFaults; more > 0 {
		errs = append(errs, fmt.Errorf("and %d other prefixes", more))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fib: %w", err)
	}
	return nil
}

// Stuck returns why the process must be restarted, or nil: the kernel does not answer.
func (t *Table) Stuck() error { return t.rounds.Stuck() }
