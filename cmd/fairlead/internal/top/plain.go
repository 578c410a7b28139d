package top

import (
	"context"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/sleep"
)

// Once returns the rates of the model's page, for which it takes two readings.
func Once(ctx context.Context, m *Model, limit int, fetch Fetch) (rates.Report, error) {
	w := m.Wants()
	w.Query.Limit, w.Status, w.Events = limit, false, false
	for {
		s := fetch(ctx, w)
		if s.Err != nil || s.Report.Error != "" || s.Report.Seconds > 0 || !sleep.For(ctx, m.pause(s)) {
			return s.Report, s.Err
		}
	}
}

// Sheet presents a Report as a plain table: with rows of their view, otherwise with drops.
func Sheet(r rates.Report) status.Sheet {
	m := Model{sample: Sample{Report: r}}
	t := rateTable(Tab(r.View), false, r, r.Time)
	s := status.Sheet{Value: r, Lines: []string{m.title()}}
	if r.View == rates.Node {
		t = dropTable(r.Drops)
	}
	for _, c := range t.columns {
		s.Head = append(s.Head, c.title)
	}
	s.Rows = t.rows
	if r.Error != "" {
		s.Lines = append(s.Lines, r.Error)
	}
	if len(r.Rows) < r.Matching {
		s.Lines = append(s.Lines, fmt.Sprintf("%d of %d rows (--limit)", len(r.Rows), r.Matching))
	}
	return s
}

// Stream prints tables until ctx ends, for output that is not a screen.
func Stream(ctx context.Context, out io.Writer, m *Model, limit int, fetch Fetch, show func(io.Writer, status.View) error) error {
	for {
		r, err := Once(ctx, m, limit, fetch)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = show(out, Sheet(r))
		}
		if err != nil {
			return err
		}
		if !sleep.For(ctx, m.pause(Sample{Report: r})) {
			return nil
		}
		fmt.Fprintln(out)
	}
}
