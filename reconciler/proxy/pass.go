package proxy

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/keyed"
	"github.com/fairlead/fairlead/internal/wake"
)

// pass decides on everything that has changed and writes the differences, along with
// those that failed earlier.
func (l *Loop) pass(ctx context.Context) {
	defer l.Rounds.Begin("service proxy")()
	started := time.Now()
	w := l.decide(started)
	w.write(l.Plane)
	l.conclude(w, started)
	if w.check {
		l.checking.Go(func() { l.check(ctx) })
	}
	if w.err() == nil && l.Health != nil && len(l.checks) > 0 {
		l.setHealth()
	}
}

// setHealth sets the health checks after everything is written. A check of a Service
// with a rejected frontend stays as it was, unless the Service has no ready endpoints
// here.
func (l *Loop) setHealth() {
	for id, check := range l.checks { // accessed only by this goroutine
		if check.Ready4+check.Ready6 > 0 && l.isRefused(id) {
			continue
		}
		l.Health.Set(id, check)
		delete(l.checks, id)
	}
}

// work is what one pass has to write, and the result.
type work struct {
	// keys are to be written; whole means all.
	keys  []proxy.Key
	whole bool
	set   []proxy.Frontend
	gone  []proxy.Key
	// check means that it is time to compare the plane with what was written.
	check bool
	// addrs is nil if already written.
	addrs []netip.Addr
	// owned reports whether a Service wants a key that the plane has. In a whole pass,
	// all others are removed.
	owned func(proxy.Key) bool

	refused            []proxy.Refusal
	applyErr, addrsErr error
}

// idle reports whether there is nothing to write.
func (w *work) idle() bool { return !w.whole && w.addrs == nil && len(w.set)+len(w.gone) == 0 }

func (w *work) err() error { return errors.Join(w.addrsErr, w.applyErr) }

// write is the only place that calls the plane to change something.
func (w *work) write(p proxy.Plane) {
	if w.addrs != nil {
		w.addrsErr = p.SetNodeAddresses(w.addrs)
	}
	if w.whole {
		w.gone = slices.DeleteFunc(p.Keys(), w.owned)
	}
	if w.whole || len(w.set)+len(w.gone) > 0 {
		w.refused, w.applyErr = proxy.Refusals(p.Apply(w.set, w.gone))
	}
}

// decide evaluates every entry that changed and returns what to write now: new changes
// and, when they are due, failed ones. One frontend that cannot be written therefore does
// not delay others.
func (l *Loop) decide(now time.Time) *work {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.owners) == 0 {
		l.owners = make(map[proxy.Key]*entry, len(l.dirty))
	}
	w := &work{}
	if l.damaged {
		l.keys.TouchAll()
		l.damaged, l.resync = false, time.Time{} // not before everything is written
	}
	if !l.resync.IsZero() && !now.Before(l.resync) {
		l.resync, w.check = time.Time{}, true
	}
	if l.all {
		for _, e := range l.entries {
			l.rebuild(e)
		}
	} else {
		for _, e := range l.dirty {
			l.rebuild(e)
		}
	}
	l.waits = l.waitsSince()
	l.dirty, l.all, l.first = nil, false, time.Time{}
	w.keys, w.whole = l.keys.Take(now)
	if l.addrsFresh || l.addrsRetry.Tries > 0 && !now.Before(l.addrsRetry.Due) {
		w.addrs, l.addrsFresh = l.addrs, false
	}
	l.collect(w)
	return w
}

// collect fills w with the frontends.
func (l *Loop) collect(w *work) {
	for _, k := range w.keys {
		if e := l.owners[k]; e != nil {
			w.set = append(w.set, *e.frontend(k))
		} else {
			w.gone = append(w.gone, k)
		}
	}
	if !w.whole {
		return
	}
	w.set = make([]proxy.Frontend, 0, len(l.owners))
	for _, e := range l.entries {
		for i := range e.frontends {
			if f := &e.frontends[i]; len(l.rivals[f.Key]) == 0 || l.owners[f.Key] == e {
				w.set = append(w.set, *f)
			}
		}
	}
	w.owned = func(k proxy.Key) bool { return l.owners[k] != nil } // only this goroutine changes them
}

// conclude records the result of a pass. Rejections only concern their Services:
// everything else is as desired.
func (l *Loop) conclude(w *work, started time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !w.idle() {
		l.written = now
	}
	if w.addrs != nil {
		l.addrsRetry.Settle(w.addrsErr, now)
	}
	l.keys.Settle(w.keys, w.whole, l.noteRefused(w.refused), w.applyErr, now)
	err := w.err()
	if err != nil {
		l.Log.Error("failed to program all frontends of the service proxy, will retry", "error", err, "frontends", len(w.set))
		if l.waits.IsZero() {
			l.waits = started
		}
	}
	clean := l.clean()
	if clean {
		l.waits = time.Time{}
	}
	l.stats.pass(w, now, now.Sub(started), err, clean)
	if w.whole && err == nil {
		l.Log.Info("all frontends of the service proxy are programmed", "services", l.services, "frontends", len(w.set)-len(w.refused),
			"rejected", len(w.refused), "removed", len(w.gone), "took", now.Sub(started))
	}
	if w.whole && w.applyErr == nil && l.Resync > 0 {
		l.resync = now.Add(l.Resync)
	}
}

// clean reports whether everything was written that is decided on.
func (l *Loop) clean() bool {
	return l.keys.IsKnown() && l.keys.Count(keyed.Failing) == 0 && l.addrsRetry.Tries == 0
}

// check compares the plane with what was written, while changes are written. If another
// process has changed it, everything is written again.
func (l *Loop) check(ctx context.Context) {
	defer l.Rounds.Begin("comparison of the service proxy with the kernel")()
	err := l.Plane.Check(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch now := time.Now(); {
	case ctx.Err() != nil:
		return
	case err != nil:
		l.Log.Warn("the kernel does not have what the service proxy has written: everything is written again", "error", err)
		l.damaged = true
	default:
		l.resync = now.Add(l.Resync)
		if l.clean() {
			l.stats.lastSync = now
		}
	}
	wake.Up(l.wake)
}

// maxLoggedRefusals limits how many rejected frontends of one pass are logged.
const maxLoggedRefusals = 10

// noteRefused logs what the plane newly rejects and returns it by key.
func (l *Loop) noteRefused(refused []proxy.Refusal) map[proxy.Key]error {
	errs, rejected := make(map[proxy.Key]error, len(refused)), 0
	for _, r := range refused {
		errs[r.Key] = r
		if l.keys.State(r.Key).Phase != keyed.Rejected {
			if rejected++; rejected <= maxLoggedRefusals {
				l.Log.Warn("failed to program a frontend, the others are programmed", "service", l.owners[r.Key].id, "frontend", r.Key, "error", r.Err)
			}
		}
	}
	if rejected > maxLoggedRefusals {
		l.Log.Warn("failed to program more frontends, see the status", "frontends", rejected-maxLoggedRefusals)
	}
	return errs
}

// isRefusal reports whether an error concerns only its own frontend.
func isRefusal(err error) bool { return errors.As(err, new(proxy.Refusal)) }

// isRefused reports whether the plane rejects a frontend of a Service.
func (l *Loop) isRefused(id service.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	return e != nil && slices.ContainsFunc(e.frontends, func(f proxy.Frontend) bool {
		return l.owners[f.Key] == e && l.keys.State(f.Key).Phase == keyed.Rejected
	})
}

// rebuild decides on one entry again.
func (l *Loop) rebuild(e *entry) {
	since := e.since
	e.since = time.Time{}
	frontends, problems := proxy.Build(e.service, e.slices, l.node)
	l.noted = false
	l.compare(e, frontends)
	if l.noted && !since.IsZero() {
		l.stats.waiting = append(l.stats.waiting, since)
	}
	e.frontends = frontends
	put(l.problems, e, problems, len(problems) > 0)
	if h := proxy.HealthOf(e.service, e.slices, l.node); h != l.health[e] {
		l.checks[e.id] = h
		put(l.health, e, h, h != proxy.HealthCheck{})
	}
	if e.service == nil && len(e.slices) == 0 {
		delete(l.entries, e.id)
	}
}

// put sets or removes the value of an entry.
func put[V any](m map[*entry]V, e *entry, v V, has bool) {
	if has {
		m[e] = v
	} else {
		delete(m, e)
	}
}

// compare claims and releases keys for an entry's next frontends, and records those to
// write.
func (l *Loop) compare(e *entry, next []proxy.Frontend) {
	old := e.frontends
	if e.service != nil && !e.service.Created.Equal(e.created) {
		for i := range old { // another Service of that name: its age differs
			l.release(old[i].Key, e)
		}
		old, e.created = nil, e.service.Created
	}
	i, j := 0, 0
	for i < len(old) || j < len(next) {
		switch c := order(old, next, i, j); {
		case c < 0:
			l.release(old[i].Key, e)
			i++
		case c > 0:
			l.claim(&next[j], e)
			j++
		case old[i].Kind != next[j].Kind:
			l.release(old[i].Key, e)
			l.claim(&next[j], e)
			i++
			j++
		default:
			if l.owners[next[j].Key] == e && !old[i].Same(&next[j]) {
				l.note(next[j].Key)
			}
			i++
			j++
		}
	}
}

// order compares the next keys of two lists. A list that has ended comes last.
func order(old, next []proxy.Frontend, i, j int) int {
	switch {
	case i == len(old):
		return 1
	case j == len(next):
		return -1
	}
	return old[i].Key.Compare(next[j].Key)
}

// claim gives e the key of one of its next frontends, or makes it a rival if another
// Service has precedence.
func (l *Loop) claim(f *proxy.Frontend, e *entry) {
	k := f.Key
	had := l.owners[k]
	if had != nil && had.before(had.frontend(k).Kind, e, f.Kind) {
		l.rivals[k] = append(l.rivals[k], e)
		return
	}
	l.owners[k] = e
	l.note(k)
	if had != nil {
		l.rivals[k] = append(l.rivals[k], had)
	}
}

// release takes a key from e. If e had it, the rival with precedence gets it.
func (l *Loop) release(k proxy.Key, e *entry) {
	rivals := l.rivals[k]
	if l.owners[k] != e {
		l.setRivals(k, slices.DeleteFunc(rivals, func(o *entry) bool { return o == e }))
		return
	}
	l.note(k)
	if len(rivals) == 0 {
		delete(l.owners, k)
		return
	}
	heir := rivals[0]
	for _, o := range rivals[1:] {
		if o.before(o.frontend(k).Kind, heir, heir.frontend(k).Kind) {
			heir = o
		}
	}
	l.owners[k] = heir
	l.setRivals(k, slices.DeleteFunc(rivals, func(o *entry) bool { return o == heir }))
}

func (l *Loop) setRivals(k proxy.Key, rivals []*entry) {
	if len(rivals) == 0 {
		delete(l.rivals, k)
		return
	}
	l.rivals[k] = rivals
}

// note marks a key to be written.
func (l *Loop) note(k proxy.Key) {
	l.noted = l.keys.Touch(k) || l.noted
}

// before reports whether e, whose frontend is of this kind, takes precedence over o for a
// key: by kind, then by the age of their Services, then by ID.
func (e *entry) before(kind proxy.Kind, o *entry, other proxy.Kind) bool {
	if kind.Beats(other) || other.Beats(kind) {
		return kind.Beats(other)
	}
	return cmp.Or(e.created.Compare(o.created), e.id.Compare(o.id)) < 0
}

// frontend returns the entry's frontend with this key.
func (e *entry) frontend(k proxy.Key) *proxy.Frontend {
	i, _ := slices.BinarySearchFunc(e.frontends, k, func(f proxy.Frontend, k proxy.Key) int { return f.Key.Compare(k) })
	return &e.frontends[i]
}
