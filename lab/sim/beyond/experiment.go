// Package beyond is what the simulator's experiments beyond the LVS paper have in
// common: an experiment answers a question from its parameters and a seed, in
// tables and curves, and makes claims that are judged over several seeds. It runs
// them; it draws and writes nothing. Each experiment is a package below.
package beyond

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/lab/sim/claim"
)

// Experiment is a question with the way to its answer. docs/beyond has a page of
// its name.
type Experiment struct {
	Name     string // hierarchy
	Title    string
	Question string
	Params   []Param
	// Run answers it for one seed. All seeds must give tables with the same rows
	// and curves with the same x. It gives an error where it was interrupted, and may
	// give what it had.
	Run     func(*Run) (*Result, error)
	Claims  []Claim
	Remarks []string // on the model and its limits
}

// Claim is something that is said of what an experiment gives.
type Claim = claim.Claim[*Result]

// Param is a number that an experiment depends on.
type Param struct {
	Name string
	Says string // what it is, with its unit
	// Full is its value where none is asked for, Small in the variant that takes
	// seconds.
	Full, Small float64
	// Least and Most bound it, both included.
	Least, Most float64
}

// Result is what came of one seed.
type Result struct {
	Tables   []Table
	Pictures []Picture
}

// Table is rows of numbers with their names.
type Table struct {
	Name, Title string
	Keys        []string // the heads of the columns that name a row
	Columns     []string // the heads of the numbers, with their units
	Rows        []Row
}

// Row is one line of a table. A number that there is none of is NaN.
type Row struct {
	Keys   []string
	Values []float64
}

// Add puts a row behind the others.
func (t *Table) Add(keys []string, values ...float64) { t.Rows = append(t.Rows, Row{keys, values}) }

// Picture is curves over the same axes.
type Picture struct {
	Name, Title, X, Y string
	// LogX and LogY ask for logarithmic axes; what is not above 0 is left out
	// there.
	LogX, LogY bool
	Series     []Series
}

// Series is a curve.
type Series struct {
	Name   string
	Points []XY
}

// XY is a point of a curve.
type XY struct{ X, Y float64 }

// Cell gives a table's number by the keys of its row, which must be there, and the
// name of its column.
func (r *Result) Cell(table, column string, keys ...string) float64 {
	for _, t := range r.Tables {
		if t.Name != table {
			continue
		}
		for _, row := range t.Rows {
			if at := slices.Index(t.Columns, column); at >= 0 && slices.Equal(row.Keys, keys) {
				return row.Values[at]
			}
		}
	}
	panic(fmt.Sprintf("no cell %s of %q in table %s", column, keys, table))
}

// Curve gives the points of a picture's curve, which must be there.
func (r *Result) Curve(picture, series string) []XY {
	for _, p := range r.Pictures {
		if p.Name != picture {
			continue
		}
		for _, s := range p.Series {
			if s.Name == series {
				return s.Points
			}
		}
	}
	panic(fmt.Sprintf("no curve %s in picture %s", series, picture))
}

// Run is one seed of an experiment under way.
type Run struct {
	Context context.Context
	Seed    uint32
	params  map[string]float64
	workers int
	// done tells how much of this seed is done, from 0 to 1.
	done func(part float64)
}

// NewRun gives a run by itself, with the parameters of the small variant but for
// those that are named.
func NewRun(ctx context.Context, e *Experiment, seed uint32, workers int, set map[string]float64) *Run {
	return &Run{ctx, seed, e.values(true, set), workers, func(float64) {}}
}

// Param gives a parameter, which the experiment must have.
func (r *Run) Param(name string) float64 {
	v, ok := r.params[name]
	if !ok {
		panic("no parameter " + name)
	}
	return v
}

// Int gives a parameter that is a whole number.
func (r *Run) Int(name string) int { return int(r.Param(name)) }

// Done tells how much of this seed is done, from 0 to 1, for a run without parts.
func (r *Run) Done(part float64) { r.done(part) }
