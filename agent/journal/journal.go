// Package journal stores an agent's events (core/event): recent ones in memory, and the same
// in a file, so that they survive a restart. Recording never waits: a goroutine joins
// repeats, writes to the file, and passes events on to readers. What does not fit is counted
// in an event.
//
// It decides nothing: events are created where a change is decided, or by a Watch, which
// compares what has no transition of its own. Tests need no agent.
package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/core/event"
)

const (
	// maxQueued events wait to be processed.
	maxQueued = 4096
	// maxFile is the size from which the file is replaced by one with what is listed.
	maxFile = 2 * event.DefaultMaxBytes
	// writePause batches what is written to the file.
	writePause = time.Second
	// maxReaders follow at the same time; each may lag by maxLag events.
	maxReaders = 16
	maxLag     = 1024
)

// FileName is the name of the file in a state directory.
const FileName = "events.jsonl"

// ErrReaders means that too many readers follow.
var ErrReaders = errors.New("too many readers follow the events: end another one first")

// Config configures a Journal.
type Config struct {
	// Path is the file; empty stores nothing.
	Path string
	// Services returns the Services to which the object of an event belongs, for events
	// that name none. It is called again before the event is stored, because it may not
	// know the object yet. May be nil.
	Services func(event.Event) []string
	// Added, if not nil, receives each event, with its count so far. It must not block.
	Added func(event.Event)
	Log   *slog.Logger
}

// Journal records events.
type Journal struct {
	config  Config
	queue   chan event.Event
	dropped atomic.Int64
	stop    chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	list    event.List
	readers map[*Reader]bool
	closed  bool
	// fault is why the file could not be written the last time.
	fault error

	// Owned by the goroutine of run.
	file  file
	dirty map[uint64]bool
}

// Open reads the file, and starts to record.
func Open(c Config) *Journal {
	j := &Journal{
		config: c, queue: make(chan event.Event, maxQueued), stop: make(chan struct{}), done: make(chan struct{}),
		readers: map[*Reader]bool{}, dirty: map[uint64]bool{}, file: file{path: c.Path, most: maxFile},
	}
	j.note(j.file.load(j.list.Restore))
	go j.run()
	return j
}

// Record records an event, which happens now unless it has a time. It does not wait.
func (j *Journal) Record(e event.Event) {
	if j == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	select {
	case j.queue <- e:
	default:
		j.dropped.Add(1)
	}
}

// Events returns the selected events, oldest first.
func (j *Journal) Events(q event.Query) []event.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.list.All(q)
}

// Problem returns why events cannot be stored, or nil.
func (j *Journal) Problem() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fault
}

// Close writes what is recorded, and ends all readers.
func (j *Journal) Close() {
	if j == nil {
		return
	}
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.mu.Unlock()
	if !closed {
		close(j.stop)
	}
	<-j.done
}

// run processes the queue until Close.
func (j *Journal) run() {
	defer close(j.done)
	var write <-chan time.Time
	for {
		select {
		case e := <-j.queue:
			j.add(e)
			j.drain()
			if write == nil {
				write = time.After(writePause)
			}
		case <-write:
			write = nil
			j.write()
		case <-j.stop:
			j.drain()
			j.write()
			_ = j.file.close() // what was written stays
			j.endReaders()
			return
		}
	}
}

// drain adds what is queued, and how much was dropped.
func (j *Journal) drain() {
	for {
		select {
		case e := <-j.queue:
			j.add(e)
			continue
		default:
		}
		break
	}
	if n := j.dropped.Swap(0); n > 0 {
		j.add(event.Event{Time: time.Now(), Type: event.EventsDropped, Object: event.Object{Kind: "Node"}, Count: int(n),
			Cause: "more happened at once than is recorded"})
	}
}

func (j *Journal) add(e event.Event) {
	if len(e.Services) == 0 && j.config.Services != nil {
		e.Services = j.config.Services(e)
	}
	j.mu.Lock()
	e = j.list.Add(e)
	for r := range j.readers {
		j.pass(r, e)
	}
	j.mu.Unlock()
	j.dirty[e.ID] = true
	if j.config.Added != nil {
		j.config.Added(e)
	}
}

// write appends the events that are new or have recurred to the file.
func (j *Journal) write() {
	if len(j.dirty) == 0 {
		return
	}
	j.mu.Lock()
	for id := range j.dirty {
		j.list.Complete(id, j.config.Services)
	}
	changed := j.list.Some(j.dirty)
	j.mu.Unlock()
	clear(j.dirty)
	j.note(j.file.append(changed, func() []event.Event { return j.Events(event.Query{}) }))
}

// note remembers the error of the file, and logs a new one.
func (j *Journal) note(err error) {
	if err != nil {
		err = fmt.Errorf("events are not stored: %w", err)
	}
	j.mu.Lock()
	was := j.fault
	j.fault = err
	j.mu.Unlock()
	if err != nil && (was == nil || was.Error() != err.Error()) {
		j.config.Log.Warn("failed to store events", "error", err)
	}
}
