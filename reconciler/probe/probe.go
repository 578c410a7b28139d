// Package probe asks servers whether they are well: TCP connect and HTTP GET
// from the network namespace of the process itself. It schedules the probes
// and feeds their outcomes to the thresholds of package health; what a state
// means for traffic is not decided here.
package probe

import (
	"container/heap"
	"context"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/service"
)

// maxInFlight bounds the probes under way, and so the sockets. It is far more
// than 10,000 living servers need at once; with more dead ones than this all
// probes come later.
const maxInFlight = 2048

// Result is what is known about one target.
type Result struct {
	State health.State
	// Since is when State last changed; zero while it is Unknown.
	Since time.Time
	// WasUp says that a probe has found it up at some time.
	WasUp bool
	// Error is why the latest probe failed, in words: "HTTP 503, wanted 2xx
	// or 3xx". It is empty after a good one.
	Error string
}

// Prober probes a set of targets, each on its own beat: the interval divides
// time exactly, and each target's place within it comes from its name.
type Prober struct {
	log     *slog.Logger
	epoch   time.Time
	wake    chan struct{}
	changed chan struct{}
	slots   chan struct{}

	mu      sync.Mutex
	entries map[health.Target]*entry
	queue   queue
}

// entry is one target. The Prober's mutex guards all that changes.
type entry struct {
	target   health.Target
	interval time.Duration
	phase    time.Duration
	due      time.Time
	place    int // in the queue; -1 for none

	running bool
	overdue bool // due again while still running
	again   bool // its first probe was not answered in time, and is made once more
	tracker health.Tracker
	since   time.Time
	wasUp   bool
	err     string
}

// New makes a Prober that has no targets yet.
func New(log *slog.Logger) *Prober {
	return &Prober{
		log: log, epoch: time.Now(), entries: map[health.Target]*entry{},
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), slots: make(chan struct{}, maxInFlight),
	}
}

// Set makes the targets exactly these. One that stays keeps its state and its
// beat; one that goes is forgotten.
func (p *Prober) Set(targets []health.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := make(map[health.Target]bool, len(targets))
	var fresh []*entry
	for _, t := range targets {
		wanted[t] = true
		if p.entries[t] == nil {
			e := newEntry(t)
			p.entries[t] = e
			fresh = append(fresh, e)
		}
	}
	for t, e := range p.entries {
		if !wanted[t] {
			delete(p.entries, t)
			if e.place >= 0 {
				heap.Remove(&p.queue, e.place)
			}
		}
	}
	p.start(fresh)
	signal(p.wake)
}

// start puts new entries in the queue. Their first probes come as soon as
// possible, a millisecond apart, because a new server waits for its first
// probe; but never slower than one interval for all.
func (p *Prober) start(fresh []*entry) {
	now := time.Now()
	for i, e := range fresh {
		if e.target.Check.Kind == service.CheckNone {
			e.tracker.State, e.since = health.Up, now
			signal(p.changed)
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

// State gives the state of a target; Unknown for one that is not in the set.
func (p *Prober) State(t health.Target) health.State { return p.Result(t).State }

// Result gives what is known about a target.
func (p *Prober) Result(t health.Target) Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[t]; e != nil {
		return Result{e.tracker.State, e.since, e.wasUp, e.err}
	}
	return Result{}
}

// States gives the states of all targets at one moment.
func (p *Prober) States() map[health.Target]health.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := make(map[health.Target]health.State, len(p.entries))
	for t, e := range p.entries {
		states[t] = e.tracker.State
	}
	return states
}

// Changed is sent to after any state has changed. Changes that come before
// the receiver looks are one.
func (p *Prober) Changed() <-chan struct{} { return p.changed }

// Run probes until ctx ends and every probe under way has ended with it.
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
			err := probe(ctx, e.target)
			if ctx.Err() == nil {
				p.finish(e, err)
			}
		})
	}
}

// next takes the entry that is due, or says how long to wait for one.
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

// beat gives the first time after now that is on e's own grid, so that
// lateness never adds up. The beat that follows a first probe too closely is
// left out.
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

// finish takes the outcome of a probe.
func (p *Prober) finish(e *entry, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.running = false
	if p.entries[e.target] != e {
		return // left the set meanwhile
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
		return // says nothing about the server
	}
	if e.tracker.State == health.Unknown && !e.again && timedOut(err) {
		e.again = true
		p.hurry(e)
		return // one lost packet, or a machine that is busy to begin: too little to decide alone
	}
	before := e.tracker.State
	e.tracker = e.tracker.Next(err == nil, e.target.Check)
	e.wasUp = e.wasUp || e.tracker.State == health.Up
	if e.tracker.State != before {
		e.since = time.Now()
		p.log.Info("health changed", "server", e.target.Addr, "check", e.target.Check.Kind,
			"was", before, "is", e.tracker.State, "error", e.err)
		signal(p.changed)
	}
}

// hurry makes an entry due now.
func (p *Prober) hurry(e *entry) {
	e.due = time.Now()
	heap.Fix(&p.queue, e.place)
	signal(p.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// queue is a heap of entries by the time they are due.
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
