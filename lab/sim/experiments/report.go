package experiments

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Outcome contains the results of an experiment. Its JSON field names are stable.
type Outcome struct {
	Experiment string             `json:"experiment"`
	Title      string             `json:"title"`
	Question   string             `json:"question"`
	Params     map[string]float64 `json:"params"`
	Verdict    verdict.Verdict    `json:"verdict"`
	Seeds      int                `json:"seeds"` // number of complete seeds
	Findings   []verdict.Finding  `json:"findings"`
	Tables     []Means            `json:"tables"`
	Pictures   []Drawing          `json:"pictures"`
	Remarks    []string           `json:"remarks,omitempty"`
}

// Means contains a table's means over the seeds.
type Means struct {
	Name    string    `json:"name"`
	Title   string    `json:"title"`
	Keys    []string  `json:"keys"`
	Columns []string  `json:"columns"`
	Rows    []MeanRow `json:"rows"`
}

// MeanRow is one line. A missing number is nil.
type MeanRow struct {
	Keys   []string            `json:"keys"`
	Values []*verdict.Estimate `json:"values"`
}

// Drawing contains a picture's means over the seeds.
type Drawing struct {
	Name   string          `json:"name"`
	Title  string          `json:"title"`
	X      string          `json:"x"`
	Y      string          `json:"y"`
	LogX   bool            `json:"log_x,omitempty"`
	LogY   bool            `json:"log_y,omitempty"`
	Curves []verdict.Curve `json:"curves"`
}

// outcome summarizes the complete seeds. Without any, it shows the results of a
// partial seed without judging claims.
func (e *Experiment) outcome(params map[string]float64, seeds, partial []*Result) (Outcome, error) {
	o := Outcome{Experiment: e.Name, Title: e.Title, Question: e.Question, Params: params, Verdict: verdict.Unsettled, Seeds: len(seeds),
		Findings: []verdict.Finding{}, Tables: []Means{}, Pictures: []Drawing{}, Remarks: e.Remarks}
	if len(seeds)+len(partial) == 0 {
		return o, nil
	}
	if err := check(append(seeds, partial...)); err != nil {
		return o, err
	}
	if len(seeds) > 0 {
		for _, c := range e.Claims {
			o.Findings = append(o.Findings, c.Judge(seeds))
		}
		if o.Verdict = verdict.Sum(o.Findings); len(e.Claims) == 0 {
			o.Verdict = verdict.None
		}
	} else {
		seeds = partial
	}
	for i := range seeds[0].Tables {
		o.Tables = append(o.Tables, meansOf(seeds, i))
	}
	for i := range seeds[0].Pictures {
		o.Pictures = append(o.Pictures, drawingOf(seeds, i))
	}
	return o, nil
}

var errShape = errors.New("seeds differ in their tables' rows or their curves' points")

// check rejects tables with missing cells, and results that cannot be combined.
func check(seeds []*Result) error {
	for _, t := range seeds[0].Tables {
		for _, row := range t.Rows {
			if len(row.Values) != len(t.Columns) || len(row.Keys) != len(t.Keys) {
				return fmt.Errorf("table %s, row %q: it has another number of values than of columns", t.Name, row.Keys)
			}
		}
	}
	for i, r := range seeds {
		if !slices.Equal(r.shape(), seeds[0].shape()) {
			return fmt.Errorf("seeds 1 and %d: %w", i+1, errShape)
		}
	}
	return nil
}

// shape names all rows and points, in order.
func (r *Result) shape() (all []string) {
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			all = append(all, fmt.Sprintf("%s %q of %q", t.Name, row.Keys, t.Columns))
		}
	}
	for _, p := range r.Pictures {
		for _, s := range p.Series {
			for _, at := range s.Points {
				all = append(all, fmt.Sprintf("%s %s %v", p.Name, s.Name, at.X))
			}
		}
	}
	return all
}

func meansOf(seeds []*Result, i int) Means {
	first := &seeds[0].Tables[i]
	m := Means{first.Name, first.Title, first.Keys, first.Columns, nil}
	for k, row := range first.Rows {
		mean := MeanRow{Keys: row.Keys}
		for at := range row.Values {
			all := make([]float64, len(seeds))
			for s, r := range seeds {
				all[s] = r.Tables[i].Rows[k].Values[at]
			}
			mean.Values = append(mean.Values, known(all))
		}
		m.Rows = append(m.Rows, mean)
	}
	return m
}

// known estimates the mean of the values that are finite numbers, or returns nil if no
// value is finite.
func known(all []float64) *verdict.Estimate {
	all = slices.DeleteFunc(all, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	if len(all) == 0 {
		return nil
	}
	e := verdict.Mean(all)
	return &e
}

func drawingOf(seeds []*Result, i int) Drawing {
	first := &seeds[0].Pictures[i]
	d := Drawing{Name: first.Name, Title: first.Title, X: first.X, Y: first.Y, LogX: first.LogX, LogY: first.LogY}
	for k, series := range first.Series {
		c := verdict.Curve{Name: series.Name}
		for at, p := range series.Points {
			all := make([]float64, len(seeds))
			for s, r := range seeds {
				all[s] = r.Pictures[i].Series[k].Points[at].Y
			}
			if e := known(all); e != nil {
				c.Points = append(c.Points, verdict.Point{X: p.X, Estimate: *e})
			}
		}
		d.Curves = append(d.Curves, c)
	}
	return d
}
