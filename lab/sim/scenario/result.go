package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
)

// result converts an outcome to the requested tables and pictures.
func (o *outcome) result() *experiments.Result {
	r := &experiments.Result{Tables: []experiments.Table{o.sums(), o.events()}}
	if len(o.tables) > 0 {
		r.Tables = append(r.Tables, o.chains())
	}
	for _, m := range []struct {
		of     Measure
		tables []func() experiments.Table
		draws  []func() experiments.Picture
	}{
		{of: Throughput, draws: []func() experiments.Picture{o.throughput}},
		{of: Loss, tables: []func() experiments.Table{o.lossTable}, draws: []func() experiments.Picture{o.loss}},
		{of: Broken, draws: []func() experiments.Picture{o.broken}},
		{of: Latency, draws: []func() experiments.Picture{o.latency}},
		{of: Shares, tables: []func() experiments.Table{o.shareTable}, draws: []func() experiments.Picture{
			func() experiments.Picture { return o.portions(Balancer) }, func() experiments.Picture { return o.portions(Server) },
		}},
	} {
		if !slices.Contains(o.s.Measures, m.of) {
			continue
		}
		for _, table := range m.tables {
			r.Tables = append(r.Tables, table())
		}
		for _, draw := range m.draws {
			r.Pictures = append(r.Pictures, draw())
		}
	}
	return r
}

// The names of tables and columns that claims use.
const (
	tableSums, columnValue     = "sums", "value"
	rowFailed, rowP99          = "failed", "99 % of responses within"
	percent, milliseconds, one = "%", "ms", ""
)

// sums returns the table of totals.
func (o *outcome) sums() experiments.Table {
	t := experiments.Table{Name: tableSums, Title: "Total", Keys: []string{"measure", "unit"}, Columns: []string{columnValue}}
	row := func(name, unit string, value float64) { t.Add([]string{name, unit}, value) }
	sum, h := &o.total, &o.watch.all
	row("requested", "connections and single requests", sum.asked)
	row("replies", "per second", sum.answered/o.until)
	row("connections broken", one, sum.broken)
	row("connections given up", one, sum.givenUp)
	row("packets retransmitted", one, sum.retried)
	row(rowFailed, percent, 100*sum.failed())
	row("50 % of responses within", milliseconds, 1e3*h.Quantile(0.5))
	row("90 % of responses within", milliseconds, 1e3*h.Quantile(0.9))
	row(rowP99, milliseconds, 1e3*h.Quantile(0.99))
	row("99.9 % of responses within", milliseconds, 1e3*h.Quantile(0.999))
	row("packets lost", one, sum.losses())
	return t
}

// events returns the table of results between events.
func (o *outcome) events() experiments.Table {
	t := experiments.Table{Name: "events", Title: "From each event to the next", Keys: []string{"at", "event"},
		Columns: []string{"answers/s", "least in " + reading.Show(o.s.Interval, reading.Seconds) + ", answers/s", "broken", "given up", "packets lost", "p99 ms"}}
	from, what := 0.0, "the beginning"
	for i, to := range o.watch.bounds {
		if i == len(o.spans) {
			break
		}
		span, end := o.spans[i], min(to, o.until)
		t.Add([]string{reading.Show(from, reading.Seconds), what}, span.answered/max(end-from, 1e-9), o.least(from, end), span.broken, span.givenUp,
			span.losses(), 1e3*o.watch.spans[i].Quantile(0.99))
		from, what = to, o.s.at(to)
	}
	return t
}

// least returns the lowest rate of replies of the intervals within a span, or NaN
// without any.
func (o *outcome) least(from, to float64) float64 {
	least := math.NaN()
	for i, bin := range o.bins {
		at := float64(i) * o.s.Interval
		if at >= from && at+o.s.Interval <= to+1e-9 && !(least <= bin.answered/o.s.Interval) {
			least = bin.answered / o.s.Interval
		}
	}
	return least
}

// at describes the events at a given time.
func (s *Scenario) at(moment float64) string {
	var words []string
	for i := range s.Events {
		if e := &s.Events[i]; e.At == moment {
			names := make([]string, len(e.What))
			for j, ref := range e.What {
				names[j] = ref.Name
			}
			words = append(words, fmt.Sprintf("%s %s", e.Action, strings.Join(names, " from ")))
		}
	}
	return strings.Join(words, ", ")
}

// chains returns the table of the load balancers' lookups.
func (o *outcome) chains() experiments.Table {
	t := experiments.Table{Name: "tables", Title: "Flow tables", Keys: []string{"balancer", "service"},
		Columns: []string{"buckets", "connections at the end", "longest chain", "lookups", "looked at in each"}}
	for _, f := range o.tables {
		t.Add([]string{f.balancer, f.service}, float64(f.buckets), float64(f.Connections), float64(f.Longest), float64(f.Lookups),
			float64(f.Looked)/max(1, float64(f.Lookups)))
	}
	return t
}

func (o *outcome) lossTable() experiments.Table {
	t := experiments.Table{Name: "losses", Title: "Packets lost", Keys: []string{"reason"}, Columns: []string{"packets"}}
	for i, r := range reasons {
		t.Add([]string{r.name}, o.total.lost[i])
	}
	return t
}

func (o *outcome) shareTable() experiments.Table {
	t := experiments.Table{Name: "shares", Title: "Distribution", Keys: []string{"", "name"}, Columns: []string{"packets/s", "%", "lost there"}}
	for _, role := range []Role{Balancer, Server} {
		names, sum := o.s.of(role), 0.0
		for _, name := range names {
			sum += o.shares[name].got
		}
		for _, name := range names {
			p := o.shares[name]
			t.Add([]string{strings.TrimSuffix(string(role), "s"), name}, p.got/o.until, 100*p.got/max(1, sum), p.lost)
		}
	}
	return t
}

// of returns the names of all members with a role.
func (s *Scenario) of(role Role) (names []string) {
	for i := range s.Topology.Groups {
		if g := &s.Topology.Groups[i]; g.Role == role {
			names = append(names, g.Names()...)
		}
	}
	return names
}

// curve draws a value of each interval, at its end.
func (o *outcome) curve(name string, of func(i int) float64) experiments.Series {
	c := experiments.Series{Name: name}
	for i := range o.bins {
		c.Points = append(c.Points, experiments.XY{X: float64(i+1) * o.s.Interval, Y: of(i)})
	}
	return c
}

// rate draws a count of each interval as a rate per second.
func (o *outcome) rate(name string, of func(*tally) float64) experiments.Series {
	return o.curve(name, func(i int) float64 { return of(&o.bins[i]) / o.s.Interval })
}

func (o *outcome) throughput() experiments.Picture {
	return experiments.Picture{Name: "throughput", Title: "Throughput", X: "seconds", Y: "a second", Series: []experiments.Series{
		o.rate("asked: connections, single requests", func(t *tally) float64 { return t.asked }),
		o.rate("answers", func(t *tally) float64 { return t.answered }),
	}}
}

func (o *outcome) loss() experiments.Picture {
	p := experiments.Picture{Name: "loss", Title: "Packets lost, by reason", X: "seconds", Y: "packets a second"}
	for i, r := range reasons {
		p.Series = append(p.Series, o.rate(r.name, func(t *tally) float64 { return t.lost[i] }))
	}
	return p
}

func (o *outcome) broken() experiments.Picture {
	return experiments.Picture{Name: "broken", Title: "Connections that failed", X: "seconds", Y: "connections a second", Series: []experiments.Series{
		o.rate("broken", func(t *tally) float64 { return t.broken }),
		o.rate("given up", func(t *tally) float64 { return t.givenUp }),
	}}
}

func (o *outcome) latency() experiments.Picture {
	p := experiments.Picture{Name: "latency", Title: "Response time", X: "seconds", Y: "milliseconds"}
	for _, q := range []struct {
		name  string
		share float64
	}{{"half", 0.5}, {"9 of 10", 0.9}, {"99 of 100", 0.99}} {
		p.Series = append(p.Series, o.curve(q.name+" came within", func(i int) float64 { return 1e3 * o.watch.bins[i].Quantile(q.share) }))
	}
	return p
}

// drawn is the maximum number of members with separate curves.
const drawn = 8

// portions draws what each member of a role received, or the minimum and maximum of many.
func (o *outcome) portions(role Role) experiments.Picture {
	p := experiments.Picture{Name: string(role), Title: "Received by " + string(role), X: "seconds", Y: "packets a second"}
	names := o.s.of(role)
	if len(names) <= drawn {
		for _, name := range names {
			bins := o.shares[name].bins
			p.Series = append(p.Series, o.curve(name, func(i int) float64 { return bins[i] / o.s.Interval }))
		}
		return p
	}
	all := func(i int) (each []float64) {
		for _, name := range names {
			each = append(each, o.shares[name].bins[i]/o.s.Interval)
		}
		return each
	}
	p.Series = []experiments.Series{
		o.curve("the most", func(i int) float64 { return slices.Max(all(i)) }),
		o.curve("the mean", func(i int) float64 {
			sum := 0.0
			for _, x := range all(i) {
				sum += x
			}
			return sum / float64(len(names))
		}),
		o.curve("the least", func(i int) float64 { return slices.Min(all(i)) }),
	}
	return p
}
