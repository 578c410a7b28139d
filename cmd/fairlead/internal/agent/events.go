package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/api"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/reconciler"
)

// watchPace is the interval at which lasting states are compared, and the shortest one at
// which the backends of Services are indexed again.
const watchPace = time.Second

// events is the agent's journal.
type events struct {
	*journal.Journal
	node string
	// dir holds the journal of an agent without other state.
	dir  *statedir.Dir
	loop atomic.Pointer[reconciler.Loop]

	// The Services of each backend in a plan, owned by the journal's goroutine.
	plan    *plan.Plan
	of      map[string][]string
	indexed time.Time
}

// openEvents opens the journal in the directory with the agent's state.
func (a *agent) openEvents() {
	e := &events{node: a.config.Node}
	dir := a.state
	if dir == nil {
		dir = statedir.Open(a.config.StateDir, slog.Default())
		e.dir = dir
	}
	e.Journal = journal.Open(journal.Config{Path: dir.File(journal.FileName), Services: e.services, Added: a.postEvent, Log: slog.Default()})
	a.events = e
	e.Record(event.Event{Type: event.AgentStarted, Object: e.self(), Cause: version.String() + ", roles: " + strings.Join(a.config.Roles, ", ")})
}

func (e *events) self() event.Object { return event.Object{Kind: "Node", Name: e.node} }

// close ends the journal of an agent that stops.
func (e *events) close() error {
	if e == nil {
		return nil
	}
	e.Record(event.Event{Type: event.AgentStopped, Object: e.self()})
	err := e.Close()
	e.dir.Close()
	return err
}

// services returns the Services of a backend.
func (e *events) services(o event.Object) []string {
	loop := e.loop.Load()
	if o.Kind != "Backend" || loop == nil {
		return nil
	}
	if p := loop.View().Plan; p != e.plan && time.Since(e.indexed) >= watchPace {
		e.plan, e.of, e.indexed = p, servicesOf(p), time.Now()
	}
	return e.of[o.Name]
}

// servicesOf returns the Services of each backend, by its address and port.
func servicesOf(p *plan.Plan) map[string][]string {
	all := map[string][]string{}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		id := f.Service.ID.String()
		for _, b := range f.Backends {
			at := b.Target.Addr.String()
			if of := all[at]; len(of) == 0 || of[len(of)-1] != id {
				all[at] = append(of, id)
			}
		}
	}
	return all
}

// watch records what lasts longer than a moment, until ctx ends.
func (e *events) watch(ctx context.Context, seen func() journal.Seen) {
	w := journal.NewWatch(e.node, e.Events(event.Query{}))
	for sleep.For(ctx, watchPace) {
		for _, of := range w.Look(seen()) {
			e.Record(of)
		}
	}
}

// seen returns what the watch compares.
func (a *agent) seen() journal.Seen {
	s := journal.Seen{Problems: a.statusSource().Lasting(time.Now()), Degraded: a.degraded(), Loaded: true}
	switch {
	case a.loop != nil:
		s.Loaded = a.loop.View().Loaded
	case a.proxy != nil:
		s.Loaded = a.proxy.loop.View().Loaded
	}
	return s
}

// slowReader is how long a reader of events may take for one of them.
const slowReader = 5 * time.Second

// answerJournal writes the events that a request selects, one JSON value each, and with
// follow=true further ones as they happen.
func (a *agent) answerJournal(s *stream, r *http.Request) error {
	q, follow, err := api.EventQuery(r.URL.Query())
	if err != nil {
		return err
	}
	if !follow {
		return writeEvents(s, a.events.Events(q))
	}
	past, reader, err := a.events.Follow(q)
	if err != nil {
		return err
	}
	defer a.events.Unfollow(reader)
	control := http.NewResponseController(s.w)
	for next := past; ; {
		if err := control.SetWriteDeadline(time.Now().Add(slowReader)); err != nil {
			return err
		}
		if err := writeEvents(s, next); err != nil {
			return err
		}
		s.Flush()
		select {
		case <-r.Context().Done():
			return nil
		case e, more := <-reader.C:
			if !more {
				return nil
			}
			next = []event.Event{e}
		}
	}
}

func writeEvents(s *stream, all []event.Event) error {
	enc := json.NewEncoder(s)
	for i := range all {
		if err := enc.Encode(&all[i]); err != nil {
			return err
		}
	}
	return nil
}
