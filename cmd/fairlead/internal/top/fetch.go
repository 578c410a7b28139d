package top

import (
	"context"
	"net/http"

	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/core/event"
)

// FromAgent returns a Fetch that queries an agent.
func FromAgent(q *query.Query) Fetch {
	return func(ctx context.Context, w Wants) (s Sample) {
		ctx, cancel := context.WithTimeout(ctx, query.Timeout)
		defer cancel()
		s.For = w
		s.Err = q.DoJSON(ctx, http.MethodGet, rates.Path, w.Query.Values(), nil, &s.Report)
		if s.Err == nil && w.Status {
			s.Status, s.Err = q.FetchOnly(ctx, selection.Selection{Node: true})
		}
		if s.Err == nil && w.Events {
			s.Events, s.Err = recorded(ctx, q, event.Query{Since: w.Since, Limit: maxEvents})
		}
		return s
	}
}

func recorded(ctx context.Context, q *query.Query, of event.Query) (all []event.Event, err error) {
	body, err := q.Do(ctx, http.MethodGet, journal.Path, journal.Params(of, false), nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	err = query.Each(ctx, body, func(e event.Event) error {
		all = append(all, e)
		return nil
	})
	return all, err
}
