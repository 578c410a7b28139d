package reconciler

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source"
)

// balancers is the set of other load balancers configured in a data plane.
type balancers struct{ all, draining []netip.Addr }

// setBalancers configures a data plane that tracks flows with the other load balancers
// and those that are draining, if they have changed.
func (l *Loop) setBalancers(s *source.Snapshot, failures map[string]error) {
	peered, ok := l.DataPlane.(dataplane.Peered)
	if !ok {
		return
	}
	others := func(of []netip.Addr) []netip.Addr {
		return slices.DeleteFunc(slices.Clone(of), func(a netip.Addr) bool { return slices.Contains(l.Own, a) })
	}
	now := balancers{others(s.Balancers), others(s.Draining)}
	was := l.others
	if was == nil {
		was = &balancers{}
	} else if slices.Equal(was.all, now.all) && slices.Equal(was.draining, now.draining) {
		return
	}
	if err := peered.SetBalancers(now.all, now.draining); err != nil {
		failures["other balancers"] = err
		return
	}
	if !slices.Equal(was.draining, now.draining) {
		l.Log.Info("other balancers draining", "balancers", now.draining)
	}
	l.others = &now
}

// isNamed reports whether the source lists this load balancer as draining.
func (l *Loop) isNamed(s *source.Snapshot) bool {
	return slices.ContainsFunc(s.Draining, func(a netip.Addr) bool { return slices.Contains(l.Own, a) })
}

// prepareAfter is how long after its first pass a loop has finished its startup work.
const prepareAfter = 3 * time.Second

// prepare prepares a data plane for packets that others hand over. None can arrive before
// a load balancer drains, and at startup the CPU has more important work. It returns when
// it is due, or 0 for never.
func (l *Loop) prepare(s *source.Snapshot, failures map[string]error) time.Duration {
	peered, ok := l.DataPlane.(dataplane.Peered)
	if !ok || !l.Balancers || l.prepared {
		return 0
	}
	if wait := time.Until(l.began.Add(prepareAfter)); wait > 0 && len(l.drain.why) == 0 && !l.isNamed(s) {
		return wait
	}
	if err := peered.Prepare(); err != nil {
		failures["packets of other balancers"] = err
		return 0
	}
	l.prepared = true
	return 0
}

// As long as a load balancer that leaves has not read its own name in the source, the
// others have not either. noticeLimit is how long it waits for that, noticeSpread how
// much later the others may read it.
const (
	noticeLimit  = 3 * time.Second
	noticeSpread = 300 * time.Millisecond
	noticePace   = 20 * time.Millisecond
)

// drainPace is the interval at which the number of tracked flows and the stage are
// checked.
const drainPace = time.Second

// Reasons to drain that do not come from the source.
const (
	whyEnding  = "the agent is stopping"
	whyOrdered = "by command (fairlead drain)"
)

// draining is the state of a drain.
type draining struct {
	stage plan.Stage
	why   []string
	// began is when draining began, entered when the current stage did, named when the
	// source first listed this load balancer as draining.
	began, entered, named time.Time
	// had means that there were routes to withdraw. confirmed is when all withdrawals
	// were confirmed, after which Linger begins.
	had       bool
	confirmed time.Time
	flows     int
	hurry     bool
}

// shown returns the exported form.
func (d *draining) shown() *Drain {
	return &Drain{Stage: d.stage, Why: d.why, Since: d.began, Entered: d.entered, Flows: d.flows}
}

// OrderDrain starts or ends a drain requested by an operator. The order persists until it
// is ended or the loop stops.
func (l *Loop) OrderDrain(on bool) {
	l.ordered.Store(on)
	wake.Up(l.wake)
}

// nextStage advances the drain as far as possible and returns its state for the plan.
func (l *Loop) nextStage(s *source.Snapshot) plan.Drain {
	now, d := time.Now(), &l.drain
	in := l.drainInput(s, now)
	d.why = in.Why
	for next := d.stage.Next(in); next != d.stage; next = d.stage.Next(in) {
		l.enter(next, now)
		in.In = 0
		in.Linger, in.Unconfirmed = l.lingers(now)
	}
	return plan.Drain{Stage: d.stage, Why: d.why, Avoid: l.Avoid}
}

func (l *Loop) drainInput(s *source.Snapshot, now time.Time) plan.DrainInput {
	d := &l.drain
	in := plan.DrainInput{
		Why: slices.Clone(s.Drain), Last: s.Last, In: now.Sub(d.entered), Notice: l.DrainNotice, NoticeLimit: noticeLimit,
		Announces: len(l.announced) > 0, Hurry: d.hurry,
	}
	in.Linger, in.Unconfirmed = l.lingers(now)
	for why, is := range map[string]bool{whyEnding: l.ending, whyOrdered: l.ordered.Load()} {
		if is {
			in.Why, in.Last = append(in.Why, why), false
		}
	}
	slices.Sort(in.Why)
	if len(in.Why) == 0 {
		return in
	}
	if !in.Announces || l.Avoid == (plan.Avoid{}) {
		in.Notice = 0
	}
	if keeper, ok := l.DataPlane.(dataplane.Peered); ok && l.Balancers && l.DrainTimeout > 0 && d.stage != plan.Drained {
		in.Timeout, in.Remembers = l.DrainTimeout-max(0, in.Linger-l.Linger), l.remembers(keeper)
	}
	if d.named.IsZero() && l.isNamed(s) {
		d.named = now
	}
	in.Notified = !d.named.IsZero() && now.Sub(d.named) >= noticeSpread
	return in
}

// lingers returns how long after the withdrawal of the routes packets may still arrive
// from routers, and whether some withdrawal is unconfirmed, so that this time is not yet
// known. A loop that is ending waits at most DrainTimeout for the confirmation; the data
// plane's contents stay.
func (l *Loop) lingers(now time.Time) (linger time.Duration, unconfirmed bool) {
	d := &l.drain
	most := l.Linger + l.DrainTimeout
	switch {
	case !d.stage.Leaves() || !d.had && len(l.withdrawing) == 0:
		return 0, false
	case d.hurry:
		return l.Linger, false
	case d.confirmed.IsZero():
		return l.Linger, !l.ending || now.Sub(d.entered) < most
	}
	linger = d.confirmed.Sub(d.entered) + l.Linger
	if l.ending {
		linger = min(linger, most)
	}
	return linger, false
}

// enter switches to another stage.
func (l *Loop) enter(next plan.Stage, now time.Time) {
	d := &l.drain
	was := d.stage
	if was == "" || was == plan.Serving || was == plan.Deferred {
		d.began = now
	}
	if next == plan.Withdrawn {
		d.had, d.confirmed = len(l.announced) > 0, time.Time{}
	}
	d.stage, d.entered, d.named = next, now, time.Time{}
	if l.OnDrain != nil && (was != "" || next != plan.Serving) {
		l.OnDrain(*d.shown())
	}
	reasons := strings.Join(d.why, "; ")
	switch next {
	case plan.Serving:
		d.flows = 0
		if was != "" {
			l.Log.Info("drain ended: no reason to drain is left", "took", now.Sub(d.began).Round(time.Millisecond))
		}
	case plan.Deferred:
		l.Log.Warn("drain deferred: this is the last active load balancer", "reason", reasons)
	case plan.Drained:
		if len(l.withdrawing) > 0 {
			l.Log.Warn("not all withdrawals are confirmed", "routes", len(l.withdrawing), "reason", blocked(l.withdrawing).String())
		}
		l.Log.Info("drained", "reason", reasons, "flows", d.flows, "took", now.Sub(d.began).Round(time.Millisecond))
	default:
		l.Log.Info("draining", "stage", next, "reason", reasons, "flows", d.flows)
	}
}

// sooner returns the time until the next pass, which draining may require earlier.
func (l *Loop) sooner(next time.Duration) time.Duration {
	d, now := &l.drain, time.Now()
	in := now.Sub(d.entered)
	linger, unconfirmed := l.lingers(now)
	var due time.Duration
	switch {
	case d.stage == plan.Notifying:
		due = noticePace
	case d.stage == plan.Withdrawn && !unconfirmed && (in < linger || !d.confirmed.Before(l.passed)):
		due = max(linger-in, time.Nanosecond)
	case d.stage == plan.GracefulShutdown:
		due = max(l.DrainNotice-in, time.Nanosecond)
	case d.stage == plan.Withdrawn:
		due = drainPace
	default:
		return next
	}
	return min(next, due, drainPace)
}

// remembers reports whether there are flows to keep forwarding. If they cannot be
// counted, it assumes that there are.
func (l *Loop) remembers(keeper dataplane.Peered) bool {
	flows, err := keeper.Remembered()
	if err != nil {
		l.Log.Warn("failed to count tracked flows", "error", err)
		return true
	}
	l.drain.flows = flows
	return flows > 0
}
