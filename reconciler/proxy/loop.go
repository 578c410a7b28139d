// Package proxy keeps a data plane of the service proxy in line with the source: it
// stores Services and slices, runs proxy.Build for those that changed, and writes the
// differences. In an idle cluster, a change is written immediately; many changes are
// batched for a limited time. The work depends on the size of the change, not of the
// cluster. Failed writes are retried.
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
	"github.com/fairlead/fairlead/internal/heartbeat"
	"github.com/fairlead/fairlead/internal/keyed"
	"github.com/fairlead/fairlead/internal/wake"
)

// HealthPorts serves the health check node ports. It is implemented by package
// healthport.
type HealthPorts interface {
	// Set replaces the check of a Service. The zero value removes it.
	Set(service.ID, proxy.HealthCheck)
}

// Config configures the loop.
type Config struct {
	Plane proxy.Plane
	// Health may be nil.
	Health HealthPorts
	// Window and MaxDelay are those of the proxy.Pace for writing.
	Window, MaxDelay time.Duration
	// Resync is the interval at which the plane is compared with what was written, to repair
	// changes made by others. 0: never.
	Resync time.Duration
	// Rounds notices if a pass is stuck; nil for none.
	Rounds *heartbeat.Rounds
	Log    *slog.Logger
}

// Loop is a proxy.Sink that keeps a proxy.Plane in line with what it receives.
type Loop struct {
	Config
	wake chan struct{}

	// mu protects the following fields. It is not held while the plane writes.
	mu sync.Mutex
	// entries holds everything known about a Service or about slices that name one.
	entries map[service.ID]*entry
	slices  map[proxy.SliceID]*proxy.Slice
	// services counts the entries that have a Service.
	services int
	node     proxy.Node
	loaded   bool

	// dirty lists the entries that changed since the last decision on them, in that
	// order; all means every entry.
	dirty []*entry
	all   bool
	// first and last are the times of the first and last change that no pass has handled;
	// zero: none. waits is the time of the oldest change that is not written although a
	// pass has handled it.
	first, last, waits time.Time

	// owners holds the entry that has each key, rivals the other entries that claim it.
	owners map[proxy.Key]*entry
	rivals map[proxy.Key][]*entry
	// problems holds the problems of entries that have any, health the health checks of
	// those that have one.
	problems map[*entry][]proxy.Problem
	health   map[*entry]proxy.HealthCheck

	// keys records the keys to write, those that failed and those that the plane rejects.
	keys keyed.Tracker[proxy.Key, struct{}]
	// noted means that a key to write was recorded since it was last reset.
	noted bool
	// addrs lists the node's addresses; nil if not set yet.
	addrs      []netip.Addr
	addrsFresh bool
	addrsRetry keyed.Retry
	// checks holds health checks to pass on.
	checks map[service.ID]proxy.HealthCheck

	// written is when the last call to the plane ended; resync, when the next comparison is
	// due. damaged means that the last one found a difference.
	written, resync time.Time
	damaged         bool
	checking        sync.WaitGroup
	stats           stats
}

// entry is what is known about one Service.
type entry struct {
	id      service.ID
	service *proxy.Service
	// slices are sorted by ID.
	slices []*proxy.Slice
	// since is when the entry changed; zero if it has been decided on since.
	since time.Time

	// The following fields hold the last decision.
	created   time.Time
	frontends []proxy.Frontend
}

// New returns a loop that is not running.
func New(c Config) *Loop {
	return &Loop{
		Config: c, wake: make(chan struct{}, 1),
		entries: map[service.ID]*entry{}, slices: map[proxy.SliceID]*proxy.Slice{},
		owners: map[proxy.Key]*entry{}, rivals: map[proxy.Key][]*entry{},
		problems: map[*entry][]proxy.Problem{}, health: map[*entry]proxy.HealthCheck{}, checks: map[service.ID]proxy.HealthCheck{},
		keys: keyed.Tracker[proxy.Key, struct{}]{IsRejection: isRefusal, RetryRejected: true},
	}
}

// Run runs until ctx is canceled. The contents of the plane stay.
func (l *Loop) Run(ctx context.Context) error {
	defer l.checking.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if due := l.due(); !due.IsZero() {
			if wait = time.Until(due); wait <= 0 && ctx.Err() == nil {
				l.pass(ctx)
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

// due returns when the next pass is due; zero: not before something changes.
func (l *Loop) due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loaded {
		return time.Time{} // change nothing before everything is known
	}
	if l.damaged {
		return time.Now()
	}
	due := keyed.Sooner(keyed.Sooner(l.keys.Due(), l.addrsRetry.Due), l.resync)
	if l.first.IsZero() {
		return due
	}
	return keyed.Sooner(due, proxy.Pace{Window: l.Window, MaxDelay: l.MaxDelay}.Due(l.first, l.last, l.written))
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

// leave removes a slice from its Service.
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

// SetNodeAddresses sets the addresses on which node ports are served.
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

// entry returns the entry of a Service, creating it if needed.
func (l *Loop) entry(id service.ID) *entry {
	e := l.entries[id]
	if e == nil {
		e = &entry{id: id}
		l.entries[id] = e
	}
	return e
}

// touch records that something about a Service has changed.
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
		return // Run is already notified
	}
	l.first = now
	wake.Up(l.wake)
}
