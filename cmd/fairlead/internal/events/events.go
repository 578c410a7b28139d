// Package events is what fairlead get events asks an agent, and how it prints the answer as it
// arrives. Storing events is up to agent/journal.
package events

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/internal/sleep"
)

// Query are the events that a command prints.
type Query struct {
	query.Query
	Since   time.Duration
	Service string
	Types   []string
	Watch   bool
	// answered means that an agent has answered.
	answered bool
}

// Check rejects invalid options.
func (e *Query) Check() error {
	if e.Since < 0 {
		return fmt.Errorf("--since: %s is negative", e.Since)
	}
	_, _, err := journal.ParseParams(journal.Params(e.query(time.Now()), e.Watch))
	return err
}

func (e *Query) query(now time.Time) event.Query {
	q := event.Query{Service: e.Service}
	if e.Since > 0 {
		q.Since = now.Add(-e.Since)
	}
	for _, t := range e.Types {
		q.Types = append(q.Types, event.Type(t))
	}
	return q
}

// Run prints the events, and with Watch further ones until the command is canceled.
func (e *Query) Run(cmd *cobra.Command) error {
	q := e.query(time.Now())
	if e.Watch {
		return e.follow(cmd, q)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), query.Timeout)
	defer cancel()
	list := []event.Event{}
	err := e.each(ctx, q, func(one event.Event) error {
		list = append(list, one)
		return nil
	})
	if err != nil {
		return err
	}
	return e.Print(cmd.OutOrStdout(), journal.Sheet(list, e.wide()))
}

// each calls f for the events that a query selects and, while watching, for further ones
// until the agent ends.
func (e *Query) each(ctx context.Context, q event.Query, f func(event.Event) error) error {
	body, err := e.Do(ctx, http.MethodGet, journal.Path, journal.Params(q, e.Watch), nil)
	if err != nil {
		return err
	}
	defer body.Close()
	e.answered = true
	return query.Each(ctx, body, f)
}

// retryPause is the interval at which an agent that ended is asked again.
const retryPause = time.Second

// follow prints events until ctx ends, also those of an agent that is restarted meanwhile.
func (e *Query) follow(cmd *cobra.Command, q event.Query) error {
	shown := map[uint64]int{} // the count of each event when it was shown
	var failed error
	show := func(one event.Event) error {
		if shown[one.ID] == one.Count {
			return nil
		}
		if len(shown) > event.DefaultMaxEvents {
			clear(shown)
		}
		shown[one.ID], q.Since = one.Count, one.Last
		failed = e.show(cmd.OutOrStdout(), one)
		return failed
	}
	if err := e.each(cmd.Context(), q, show); err != nil && !e.answered {
		return err
	}
	for failed == nil && sleep.For(cmd.Context(), retryPause) {
		_ = e.each(cmd.Context(), q, show) // the agent may be restarting: keep trying
	}
	return failed
}

func (e *Query) wide() bool {
	return e.Output.Format == status.Wide || e.Output.Format == status.SectionsWide
}

// show prints one event of a stream.
func (e *Query) show(out io.Writer, one event.Event) error {
	switch e.Output.Format {
	case status.YAML:
		fmt.Fprintln(out, "---")
	case status.JSON:
	default:
		s := journal.Sheet([]event.Event{one}, e.wide())
		s.Head, s.Rows, s.Lines = nil, nil, []string{strings.Join(s.Rows[0], "  ")}
		return e.Print(out, s)
	}
	return e.Print(out, status.Sheet{Value: one})
}
