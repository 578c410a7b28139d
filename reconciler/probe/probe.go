// Package probe runs health probes: TCP connect and HTTP GET from the network namespace
// of the process. It schedules the probes and passes their results to the thresholds of
// package health. What a state means for traffic is decided elsewhere.
package probe

import (
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/histogram"
	"github.com/fairlead/fairlead/internal/wake"
)

// maxInFlight limits concurrent probes, and with them sockets. It is far more than 10,000
// healthy backends need. If more backends than this do not respond, all probes are
// delayed.
const maxInFlight = 2048

// Result is the health of one target.
type Result struct {
	State health.State
	// Since is when State last changed; zero while it is Unknown.
	Since time.Time
	// WasUp means that it has been up at some time.
	WasUp bool
	// Error is why the latest probe failed: "HTTP 503, wanted 2xx or 3xx". Empty after a
	// success.
	Error string
}

// Prober probes a set of targets, each on its own schedule: probes of a target are
// exactly one interval apart, with an offset derived from the target's name.
type Prober struct {
	// Events records changes of health, except that a new target is up; nil for none.
	// It is set before Run.
	Events event.Recorder

	log     *slog.Logger
	epoch   time.Time
	wake    chan struct{}
	changed chan struct{}
	slots   chan struct{}

	durations histogram.Shared

	mu      sync.Mutex
	entries map[health.Target]*entry
	queue   queue
	moved   map[netip.Addr]bool // see Transitions
}

// entry is one target. The Prober's mutex protects its mutable fields.
type entry struct {
	target   health.Target
	interval time.Duration
	phase    time.Duration
	due      time.Time
	place    int // in the queue; -1 if not queued

	running bool
	overdue bool // due again while still running
	again   bool // its first probe timed out and is repeated once
	tracker health.Tracker
	since   time.Time
	wasUp   bool
	err     string
}

// New returns a Prober without targets.
func New(log *slog.Logger) *Prober {
	return &Prober{
		log: log, epoch: time.Now(), entries: map[health.Target]*entry{}, moved: map[netip.Addr]bool{},
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), slots: make(chan struct{}, maxInFlight),
	}
}

// Change adds targets, and removes others, which are forgotten. A target that is there
// already keeps its state and its schedule.
func (p *Prober) Change(add, remove []health.Target) {
	if len(add)+len(remove) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range remove {
		e := p.entries[t]
		if e == nil {
			continue
		}
		delete(p.entries, t)
		p.moved[t.Addr.Addr()] = true
		if e.place >= 0 {
			heap.Remove(&p.queue, e.place)
		}
	}
	var fresh []*entry
	for _, t := range add {
		if p.entries[t] == nil {
			e := newEntry(t)
			p.entries[t] = e
			fresh = append(fresh, e)
		}
	}
	p.start(fresh)
	wake.Up(p.wake)
}

// Transitions returns the addresses of targets whose state has changed since the last call,
// or that were removed. It never returns nil.
func (p *Prober) Transitions() map[netip.Addr]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := p.moved
	p.moved = map[netip.Addr]bool{}
	return moved
}

// start queues new entries. Their first probes run as soon as possible, a millisecond
// apart, because a new backend waits for its first probe, but all within at most one
// interval.
func (p *Prober) start(fresh []*entry) {
	now := time.Now()
	for i, e := range fresh {
		if e.target.Check.Kind == service.CheckNone {
			e.tracker.State, e.since = health.Up, now
			p.moved[e.target.Addr.Addr()] = true
			wake.Up(p.changed)
			continue
		}
		spread := min(e.interval, time.Duration(len(fresh))*time.Millisecond)
		e.due = now.Add(spread * time.Duration(i) / time.Duration(len(fresh)))
		heap.Push(&p.queue, e)
	}
}

func newEntry(t health.Target) *entry {
	h := fnv.New64a()
	text := t.Addr.String() + " " + string(t.Check.Kind) + " " + t.Check.Host + t.Check.Path
	h.Write([]byte(text))
	interval := max(t.Check.Interval, service.MinInterval)
	return &entry{target: t, interval: interval, phase: time.Duration(h.Sum64() % uint64(interval)), place: -1}
}

// State returns the state of a target, or Unknown if it is not in the set.
func (p *Prober) State(t health.Target) health.State { return p.Result(t).State }

// Result returns the result for a target.
func (p *Prober) Result(t health.Target) Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[t]; e != nil {
		return Result{e.tracker.State, e.since, e.wasUp, e.err}
	}
	return Result{}
}

// States returns a consistent snapshot of the states of all targets.
func (p *Prober) States() map[health.Target]health.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := make(map[health.Target]health.State, len(p.entries))
	for t, e := range p.entries {
		states[t] = e.tracker.State
	}
	return states
}

// Durations returns the durations of all successful probes.
func (p *Prober) Durations() histogram.Histogram { return p.durations.Get() }

// Changed receives a value after any state has changed. Changes that occur before the
// receiver reads are merged.
func (p *Prober) Changed() <-chan struct{} { return p.changed }

// Run probes until ctx is canceled and all probes in flight have ended.
func (p *Prober) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		e, wait := p.next()
		if e == nil {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return nil
			case <-p.wake:
			case <-timer.C:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case p.slots <- struct{}{}:
		}
		probes.Go(func() {
			defer func() { <-p.slots }()
			began := time.Now()
			err := probe(ctx, e.target)
			if err == nil {
				p.durations.Observe(time.Since(began))
			}
			if ctx.Err() == nil {
				p.finish(e, err)
			}
		})
	}
}

// next takes the entry that is due, or returns how long to wait for one.
func (p *Prober) next() (*entry, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 {
		e := p.queue[0]
		now := time.Now()
		if wait := e.due.Sub(now); wait > 0 {
			return nil, wait
		}
		e.due = p.beat(e, now)
		heap.Fix(&p.queue, 0)
		if !e.running {
			e.running = true
			return e, 0
		}
		e.overdue = true
	}
	return nil, time.Hour
}

// beat returns the first time after now on e's schedule, so that delays do not
// accumulate. A time too soon after the first probe is skipped.
func (p *Prober) beat(e *entry, now time.Time) time.Time {
	since := now.Sub(p.epoch) - e.phase
	beats := since / e.interval
	if since >= 0 {
		beats++
	}
	due := p.epoch.Add(e.phase + beats*e.interval)
	if e.tracker.State == health.Unknown && due.Sub(now) < e.interval/2 {
		due = due.Add(e.interval)
	}
	return due
}

// finish handles the result of a probe.
func (p *Prober) finish(e *entry, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.running = false
	if p.entries[e.target] != e {
		return // removed from the set in the meantime
	}
	if e.overdue {
		e.overdue = false
		p.hurry(e)
	}
	e.err = ""
	if err != nil {
		e.err = words(err, e.target.Check.Timeout)
	}
	if ours(err) {
		return // says nothing about the backend
	}
	if e.tracker.State == health.Unknown && !e.again && timedOut(err) {
		e.again = true
		p.hurry(e)
		return // one lost packet or a busy machine at startup: not enough to decide immediately
	}
	before := e.tracker.State
	e.tracker = e.tracker.Next(err == nil, e.target.Check)
	e.wasUp = e.wasUp || e.tracker.State == health.Up
	if e.tracker.State != before {
		e.since = time.Now()
		p.log.Info("health changed", "backend", e.target.Addr, "check", e.target.Check.Kind,
			"from", before, "to", e.tracker.State, "error", e.err)
		p.record(e, before)
		p.moved[e.target.Addr.Addr()] = true
		wake.Up(p.changed)
	}
}

// Field names the check of a target in events: "tcp port 80".
func Field(t health.Target) string { return fmt.Sprintf("%s port %d", t.Check.Kind, t.Addr.Port()) }

// record records a change of health.
func (p *Prober) record(e *entry, before health.State) {
	of := event.Event{
		Type: event.BackendHealthy, Object: event.Object{Kind: "Backend", Name: e.target.Addr.Addr().String()}, Field: Field(e.target),
		From: before.String(), To: e.tracker.State.String(), Cause: e.err,
	}
	switch {
	case e.tracker.State != health.Up:
		of.Type = event.BackendUnhealthy
	case before == health.Unknown:
		return
	}
	p.Events.Record(of)
}

// hurry makes an entry due now.
func (p *Prober) hurry(e *entry) {
	e.due = time.Now()
	heap.Fix(&p.queue, e.place)
	wake.Up(p.wake)
}

// queue is a heap of entries ordered by due time.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.place = len(*q)
	*q = append(*q, e)
}

func (q *queue) Pop() any {
	e := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	e.place = -1
	return e
}
