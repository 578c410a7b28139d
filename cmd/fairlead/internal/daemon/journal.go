package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/internal/version"
)

// Journal is the journal of a daemon.
type Journal struct {
	*journal.Journal
	self event.Object
	// dir holds it, if the daemon has no other state.
	dir *statedir.Dir
}

// OpenJournal opens the journal of a daemon that starts, in a directory with its other
// state or, if that is nil, at path.
func OpenJournal(node string, roles []string, dir *statedir.Dir, path string, c journal.Config) *Journal {
	j := &Journal{self: event.Object{Kind: "Node", Name: node}}
	if dir == nil {
		dir = statedir.Open(path, slog.Default())
		j.dir = dir
	}
	c.Path, c.Log = dir.File(journal.FileName), slog.Default()
	j.Journal = journal.Open(c)
	j.Record(event.Event{Type: event.AgentStarted, Object: j.self, Cause: version.String() + ", roles: " + strings.Join(roles, ", ")})
	return j
}

// Self is the Node as the object of events.
func (j *Journal) Self() event.Object { return j.self }

// Problem returns why events are not stored, or nil. What is wrong with a directory that has
// other state too is reported with that.
func (j *Journal) Problem() error {
	if errs := j.dir.Problems(); len(errs) > 0 {
		return fmt.Errorf("events are not stored: %w", errors.Join(errs...))
	}
	return j.Journal.Problem()
}

// Endpoint serves the journal.
func (j *Journal) Endpoint() socket.Endpoint {
	return socket.Endpoint{Pattern: "GET " + journal.Path, Handler: j.Journal}
}

// Close ends the journal of a daemon that stops.
func (j *Journal) Close() {
	j.Record(event.Event{Type: event.AgentStopped, Object: j.self})
	j.Journal.Close()
	j.dir.Close()
}
