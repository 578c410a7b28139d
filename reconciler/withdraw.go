package reconciler

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/lpm"
)

// confirmPace is the interval at which withdrawals are checked for confirmation.
const confirmPace = 50 * time.Millisecond

// Leaving is a frontend that is no longer in the plan but is still programmed, because
// packets may still arrive.
type Leaving struct {
	// Since is when it was last in the plan.
	Since time.Time
	// Waits lists the unconfirmed withdrawals that it waits for.
	Waits []advertise.Withdrawal
	// confirmed is when they were confirmed, after which Linger begins.
	confirmed time.Time
}

// unconfirmed returns the unconfirmed withdrawals, sorted. If the announcer failed, what
// it advertised before also counts.
func (l *Loop) unconfirmed() []advertise.Withdrawal {
	if l.Announcer == nil {
		return nil
	}
	all := l.Announcer.Withdrawing()
	if l.unsaid.Err != nil {
		wanted := byPrefix(l.asked)
		for _, r := range l.announced {
			if !wanted[r.Prefix].Prefix.IsValid() {
				all = append(all, advertise.Withdrawal{Prefix: r.Prefix, From: "the announcer", Since: l.unsaid.Since, Reason: l.unsaid.Err.Error()})
			}
		}
	}
	slices.SortFunc(all, advertise.Withdrawal.Compare)
	return all
}

// lookForConfirmations updates the state of the withdrawals and reports whether it has
// changed.
func (l *Loop) lookForConfirmations() (changed bool) {
	now := l.unconfirmed()
	changed = !slices.Equal(now, l.withdrawing)
	l.withdrawing = now
	d := &l.drain
	switch {
	case !d.stage.Leaves() || len(now) > 0 || len(l.announced) > 0:
		d.confirmed = time.Time{}
	case d.confirmed.IsZero():
		d.confirmed = time.Now()
	}
	return changed
}

// remove deletes frontends that are not in the plan: immediately if their address is
// still advertised for others, otherwise Linger after all peers have confirmed the
// withdrawal. Other frontends do not wait for that. It returns when the next one is due,
// or 0 for none.
func (l *Loop) remove(p *plan.Plan, wanted map[service.Key]bool, failures map[string]error) (next time.Duration) {
	isHeld := func(k service.Key) bool { _, is := l.held[k]; return is }
	l.keys.Drop(func(k service.Key, want desired.Frontend) bool { return !wanted[k] && (want.Key == k || !isHeld(k)) })
	maps.DeleteFunc(l.leaving, func(k service.Key, _ *Leaving) bool { return wanted[k] || !isHeld(k) })
	var shared lpm.Map[bool]
	for _, r := range l.advertisable(p) {
		shared.Put(r.Prefix, true)
	}
	out := covering(l.withdrawing)
	for k := range l.held {
		if wanted[k] {
			continue
		}
		if wait := l.stays(k, shared.Covers(k.VIP), out); wait > 0 {
			l.keys.Done(k) // an earlier failure
			next = first(next, wait)
			continue
		}
		if !l.keys.Ready(k, desired.Frontend{}, l.passed) {
			continue
		}
		began := time.Now()
		err := l.DataPlane.Delete(k)
		l.stepFrontend(began, StepRemove, k, err)
		if l.settle(k, desired.Frontend{}, err, failures) {
			delete(l.held, k)
			delete(l.leaving, k)
		}
	}
	return next
}

// covering indexes withdrawals by prefix.
func covering(all []advertise.Withdrawal) *lpm.Map[[]advertise.Withdrawal] {
	var m lpm.Map[[]advertise.Withdrawal]
	for i := 0; i < len(all); {
		end := i + 1
		for end < len(all) && all[end].Prefix == all[i].Prefix {
			end++
		}
		m.Put(all[i].Prefix, all[i:end])
		i = end
	}
	return &m
}

// stays returns how long a frontend that is not in the plan must stay programmed; 0 if it
// need not. While a withdrawal is unconfirmed, that is unknown: it returns an hour, and
// the confirmation triggers an earlier pass.
func (l *Loop) stays(k service.Key, shared bool, out *lpm.Map[[]advertise.Withdrawal]) time.Duration {
	now := time.Now()
	f := l.leaving[k]
	if f == nil {
		f = &Leaving{Since: now}
		l.leaving[k] = f
	}
	if shared || l.Announcer == nil {
		return 0
	}
	if _, waits, is := out.Lookup(k.VIP); is {
		f.Waits, f.confirmed = waits, time.Time{}
		return time.Hour
	}
	if f.Waits = nil; f.confirmed.IsZero() {
		f.confirmed = now
	}
	return max(0, f.confirmed.Add(l.Linger).Sub(now))
}

// awaitWithdrawn waits for packets in transit after all routes were withdrawn, and for
// peers to confirm that: at most DrainTimeout.
func (l *Loop) awaitWithdrawn() {
	limit := time.Now().Add(l.DrainTimeout)
	for len(l.unconfirmed()) > 0 && time.Now().Before(limit) && !l.hurried() {
		time.Sleep(confirmPace)
	}
	time.Sleep(l.Linger)
}

// hurried reports whether the drain is to be cut short.
func (l *Loop) hurried() bool {
	select {
	case <-l.Hurry: // a nil channel never is ready
		return true
	default:
		return l.drain.hurry
	}
}

// blocked returns the oldest withdrawal.
func blocked(all []advertise.Withdrawal) advertise.Withdrawal {
	return slices.MinFunc(all, func(a, b advertise.Withdrawal) int { return cmp.Or(a.Since.Compare(b.Since), a.Compare(b)) })
}
