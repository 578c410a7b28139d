// Package proxy keeps a data plane of the service proxy as the source describes it:
// it remembers Services and slices, lets proxy.Build decide again on those that
// changed, and writes what came out differently. One change of an idle cluster
// is written at once, many are gathered for a bounded time; the work is that of
// the change, not of the cluster. What could not be written is tried again.
package proxy

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
)

// Delays between passes after a failure: doubled from the first to the last.
const (
	retryFirst = 100 * time.Millisecond
	retryLast  = 10 * time.Second
)

// HealthPorts is told what health check node ports are to answer; the package
// healthport is the real one.
type HealthPorts interface {
	// Set replaces the check of a Service; the zero value: it has none.
	Set(service.ID, proxy.HealthCheck)
}

// Config is what the loop works on.
type Config struct {
	Plane proxy.Plane
	// Health may be nil.
	Health HealthPorts
	// Window and MaxDelay are the proxy.Pace of writing.
	Window, MaxDelay time.Duration
	// Resync is how often all is given to the plane again, which mends what
	// others have broken; 0: never.
	Resync time.Duration
	Log    *slog.Logger
}

// Loop is a proxy.Sink that keeps a proxy.Plane as it is told.
type Loop struct {
	Config
	wake chan struct{}

	// mu guards all that follows. It is not held while the plane writes.
	mu sync.Mutex
	// entries hold everything known of a Service or of slices that name one.
	entries map[service.ID]*entry
	slices  map[proxy.SliceID]*proxy.Slice
	// services counts the entries that have a Service.
	services int
	node     proxy.Node
	loaded   bool

	// dirty are the entries that changed since they were last decided on, in
	// that order; all says that every one has.
	dirty []*entry
	all   bool
	// first and last are when the first and the last change came that no pass has
	// looked at; zero: none. waits is when the first came that is not written
	// though one has.
	first, last, waits time.Time

	// owners are the entries that have a key. Where others claim it too, these are
	// its rivals.
	owners map[proxy.Key]*entry
	rivals map[proxy.Key][]*entry
	// problems are those of the few entries that have some, health the checks of
	// those that have one.
	problems map[*entry][]proxy.Problem
	health   map[*entry]proxy.HealthCheck

	// fresh are the keys that are to be written, nil while all are, failed those
	// that were when a pass failed; whole says that the latter may be so of every
	// key, also of some that nobody knows, broken that something failed since all
	// was written.
	fresh, failed map[proxy.Key]struct{}
	whole, broken bool
	// refused are the keys that the plane cannot hold as they should be, and why.
	refused map[proxy.Key]error
	// noted says that a key was added to fresh since it was last unset.
	noted bool
	// addrs are the node's addresses, nil for none told yet.
	addrs                   []netip.Addr
	addrsFresh, addrsFailed bool
	// checks are health checks to be told of.
	checks map[service.ID]proxy.HealthCheck

	// written is when the plane was last done with a call; again, when what failed
	// or was refused is due, zero if nothing was; resync, when everything is.
	written, again, resync time.Time
	retry                  time.Duration
	stats                  stats
}

// entry is what is known of one Service.
type entry struct {
	id      service.ID
	service *proxy.Service
	// slices are sorted by ID.
	slices []*proxy.Slice
	// since is when the entry changed, zero if it was decided on since.
	since time.Time

	// What follows was decided when it was last looked at.
	created   time.Time
	frontends []proxy.Frontend
}

// New gives a loop that has not begun.
func New(c Config) *Loop {
	return &Loop{
		Config: c, wake: make(chan struct{}, 1),
		entries: map[service.ID]*entry{}, slices: map[proxy.SliceID]*proxy.Slice{},
		owners: map[proxy.Key]*entry{}, rivals: map[proxy.Key][]*entry{},
		problems: map[*entry][]proxy.Problem{}, health: map[*entry]proxy.HealthCheck{},
		fresh: map[proxy.Key]struct{}{}, failed: map[proxy.Key]struct{}{}, refused: map[proxy.Key]error{}, whole: true, checks: map[service.ID]proxy.HealthCheck{},
	}
}

// Run writes until ctx ends. What the plane holds stays.
func (l *Loop) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if due := l.due(); !due.IsZero() {
			if wait = time.Until(due); wait <= 0 && ctx.Err() == nil {
				l.pass()
				continue
			}
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// due says when the next pass is; zero: not before something changes.
func (l *Loop) due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loaded {
		return time.Time{} // nothing is touched before all is known
	}
	due := l.again
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	if !l.resync.IsZero() {
		sooner(l.resync)
	}
	if !l.first.IsZero() {
		sooner(proxy.Pace{Window: l.Window, MaxDelay: l.MaxDelay}.Due(l.first, l.last, l.written))
	}
	return due
}

// SetService implements proxy.Sink.
func (l *Loop) SetService(s *proxy.Service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(s.ID)
	if e.service == nil {
		l.services++
	}
	e.service = s
	l.touch(e)
}

// DeleteService implements proxy.Sink.
func (l *Loop) DeleteService(id service.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[id]; e != nil && e.service != nil {
		l.services--
		e.service = nil
		l.touch(e)
	}
}

// SetSlice implements proxy.Sink.
func (l *Loop) SetSlice(sl *proxy.Slice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.slices[sl.ID]; old != nil && old.Service != sl.Service {
		l.leave(old)
	}
	l.slices[sl.ID] = sl
	e := l.entry(owner(sl))
	if i, found := search(e.slices, sl.ID); found {
		e.slices[i] = sl
	} else {
		e.slices = slices.Insert(e.slices, i, sl)
	}
	l.touch(e)
}

// DeleteSlice implements proxy.Sink.
func (l *Loop) DeleteSlice(id proxy.SliceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.slices[id]; old != nil {
		delete(l.slices, id)
		l.leave(old)
	}
}

// leave takes a slice from its Service.
func (l *Loop) leave(sl *proxy.Slice) {
	e := l.entry(owner(sl))
	if i, found := search(e.slices, sl.ID); found {
		e.slices = slices.Delete(e.slices, i, i+1)
	}
	l.touch(e)
}

func owner(sl *proxy.Slice) service.ID {
	return service.ID{Namespace: sl.ID.Namespace, Name: sl.Service}
}

func search(list []*proxy.Slice, id proxy.SliceID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(sl *proxy.Slice, id proxy.SliceID) int { return sl.ID.Compare(id) })
}

// SetNode implements proxy.Sink.
func (l *Loop) SetNode(n proxy.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n != l.node {
		l.node, l.all = n, true
		l.changed(time.Now())
	}
}

// SetNodeAddresses names the addresses on which node ports are served.
func (l *Loop) SetNodeAddresses(addrs []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.addrs == nil || !slices.Equal(addrs, l.addrs) {
		l.addrs, l.addrsFresh = append([]netip.Addr{}, addrs...), true
		l.changed(time.Now())
	}
}

// Loaded implements proxy.Sink.
func (l *Loop) Loaded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loaded {
		l.loaded, l.first = true, time.Time{}
		l.changed(time.Now())
	}
}

// entry gives that of a Service, made if there is none.
func (l *Loop) entry(id service.ID) *entry {
	e := l.entries[id]
	if e == nil {
		e = &entry{id: id}
		l.entries[id] = e
	}
	return e
}

// touch notes that something of a Service has changed.
func (l *Loop) touch(e *entry) {
	l.stats.changes++
	now := time.Now()
	if e.since.IsZero() {
		e.since = now
		l.dirty = append(l.dirty, e)
	}
	l.changed(now)
}

func (l *Loop) changed(now time.Time) {
	l.last = now
	if !l.first.IsZero() {
		return // Run knows that there is something
	}
	l.first = now
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
