package main

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

func newGetEventsCommand() *cobra.Command {
	e := eventsQuery{}
	cmd := &cobra.Command{
		Use:     "events",
		Aliases: []string{"event"},
		Short:   "List what changed, when and why",
		Long: `List the events in the agent's journal, oldest first: sessions, BFD, health of
backends, routes, drains, layer 2, rejected configuration, failures, degraded
features. The journal survives a restart. An event that recurs is listed once, with
its count. docs/reference/events.md explains each type.`,
		Example: `  fairlead get events --since 1h
  fairlead get events --service default/web -o wide
  fairlead get events --type PeerDown,BFDDown -w
  fairlead get events -o json | jq '.[] | select(.severity == "Warning")'`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return e.check() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return e.run(cmd) },
	}
	e.BasicFlags(cmd)
	f := cmd.Flags()
	f.DurationVar(&e.since, "since", 0, "only events of this last `DURATION` (default: all)")
	f.StringVar(&e.service, "service", "", "only events of the Service `NAMESPACE/NAME`, its backends and routes")
	f.StringSliceVar(&e.types, "type", nil, "only events of this `TYPE`; repeatable")
	f.BoolVarP(&e.watch, "watch", "w", false, "print further events as they happen")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(typeNames(), cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
	_ = cmd.RegisterFlagCompletionFunc("service", e.Complete(query.ServiceNames))
	return cmd
}

func typeNames() (names []string) {
	for _, d := range event.Types {
		names = append(names, string(d.Type))
	}
	return names
}

type eventsQuery struct {
	query.Query
	since   time.Duration
	service string
	types   []string
	watch   bool
	// answered means that an agent has answered.
	answered bool
}

func (e *eventsQuery) check() error {
	if e.since < 0 {
		return fmt.Errorf("--since: %s is negative", e.since)
	}
	_, _, err := journal.ParseParams(journal.Params(e.query(time.Now()), e.watch))
	return err
}

func (e *eventsQuery) query(now time.Time) event.Query {
	q := event.Query{Service: e.service}
	if e.since > 0 {
		q.Since = now.Add(-e.since)
	}
	for _, t := range e.types {
		q.Types = append(q.Types, event.Type(t))
	}
	return q
}

func (e *eventsQuery) run(cmd *cobra.Command) error {
	q := e.query(time.Now())
	if e.watch {
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
func (e *eventsQuery) each(ctx context.Context, q event.Query, f func(event.Event) error) error {
	body, err := e.Do(ctx, http.MethodGet, journal.Path, journal.Params(q, e.watch), nil)
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
func (e *eventsQuery) follow(cmd *cobra.Command, q event.Query) error {
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

func (e *eventsQuery) wide() bool {
	return e.Output.Format == status.Wide || e.Output.Format == status.SectionsWide
}

// show prints one event of a stream.
func (e *eventsQuery) show(out io.Writer, one event.Event) error {
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
