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

// confirmPace is how often it is looked whether withdrawals have been confirmed.
const confirmPace = 50 * time.Millisecond

// Leaving is a frontend that the plan does not want any more and that is still held:
// packets may still come for it.
type Leaving struct {
	// Since is when the plan wanted it last.
	Since time.Time
	// Waits are the withdrawals that it is held for; none where they are confirmed.
	Waits []advertise.Withdrawal
	// confirmed is when they were: packets on their way have Linger from then on.
	confirmed time.Time
}

// unconfirmed are the withdrawals that somebody has not confirmed, sorted. Where the
// announcer failed, what it announced before counts as well.
func (l *Loop) unconfirmed() []advertise.Withdrawal {
	if l.Announcer == nil {
		return nil
	}
	all := l.Announcer.Withdrawing()
	if l.unsaid != nil {
		wanted := byPrefix(l.asked)
		for _, r := range l.announced {
			if !wanted[r.Prefix].Prefix.IsValid() {
				all = append(all, advertise.Withdrawal{Prefix: r.Prefix, From: "the announcer", Since: l.unsaidAt, Reason: l.unsaid.Error()})
			}
		}
	}
	slices.SortFunc(all, advertise.Withdrawal.Compare)
	return all
}

// lookForConfirmations reads how the withdrawals stand, and says whether that has
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

// remove deletes what the plan does not want: at once where its address is still
// announced for others; else Linger after the withdrawal of what led to it was
// confirmed by everybody. Others do not wait for that. It says when the next one is
// due, 0 for none.
func (l *Loop) remove(p *plan.Plan, wanted map[service.Key]bool, failures map[string]error) (next time.Duration) {
	maps.DeleteFunc(l.refused, func(k service.Key, _ refusal) bool { return !wanted[k] })
	isHeld := func(k service.Key) bool { _, is := l.held[k]; return is }
	maps.DeleteFunc(l.failed, func(k service.Key, f *failure) bool { return !wanted[k] && (len(f.wish.Backends) > 0 || !isHeld(k)) })
	maps.DeleteFunc(l.leaving, func(k service.Key, _ *Leaving) bool { return wanted[k] || !isHeld(k) })
	var shared lpm.Map[bool]
	for _, r := range l.wished(p) {
		shared.Put(r.Prefix, true)
	}
	out := covering(l.withdrawing)
	for k := range l.held {
		if wanted[k] {
			continue
		}
		if wait := l.stays(k, shared.Covers(k.VIP), out); wait > 0 {
			next = first(next, wait)
			continue
		}
		if l.rests(k, desired.Frontend{}, failures) {
			continue
		}
		if err := l.DataPlane.Delete(k); err != nil {
			l.fail(k, desired.Frontend{}, err, failures)
			continue
		}
		delete(l.held, k)
		delete(l.leaving, k)
		delete(l.failed, k)
	}
	return next
}

// covering gives withdrawals by prefix.
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

// stays says for how long a frontend that is not wanted must still be held; 0 for not
// at all. While somebody has not confirmed a withdrawal that is not known: an hour,
// before which the confirmation has the loop look again.
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

// awaitWithdrawn gives packets on their way time to arrive after all was withdrawn,
// and peers time to confirm that: at most DrainTimeout.
func (l *Loop) awaitWithdrawn() {
	limit := time.Now().Add(l.DrainTimeout)
	for len(l.unconfirmed()) > 0 && time.Now().Before(limit) && !l.hurried() {
		time.Sleep(confirmPace)
	}
	time.Sleep(l.Linger)
}

// hurried says that somebody cuts a drain short.
func (l *Loop) hurried() bool {
	select {
	case <-l.Hurry: // nil never is
		return true
	default:
		return l.drain.hurry
	}
}

// blocked gives the withdrawal that has been waited for longest.
func blocked(all []advertise.Withdrawal) advertise.Withdrawal {
	return slices.MinFunc(all, func(a, b advertise.Withdrawal) int { return cmp.Or(a.Since.Compare(b.Since), a.Compare(b)) })
}
