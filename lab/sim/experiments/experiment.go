// Package experiments contains the common parts of the experiments beyond the LVS paper. An
// experiment answers a question from its parameters and a seed, with tables and curves,
// and makes claims that are judged over several seeds. The package runs experiments, but
// draws and writes nothing. Each experiment is a subpackage.
package experiments

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Experiment is a question and a method to answer it. docs/beyond has a page with its
// name.
type Experiment struct {
	Name     string // for example hierarchy
	Title    string
	Question string
	Params   []Param
	// Run answers the question for one seed. All seeds must return tables with the same
	// rows, and curves with the same x values. If it is interrupted it returns an error,
	// and may also return partial results.
	Run     func(*Run) (*Result, error)
	Claims  []Claim
	Remarks []string // on the model and its limits
}

// Claim is a statement about an experiment's results.
type Claim = verdict.Claim[*Result]

// Param is a numeric parameter of an experiment.
type Param struct {
	Name        string
	Description string // with the unit
	// Full is the default value, Small the value in the variant that takes seconds.
	Full, Small float64
	// Least and Most are the bounds, both inclusive.
	Least, Most float64
}

// Result contains the results of one seed.
type Result struct {
	Tables   []Table
	Pictures []Picture
}

// Table contains rows of numbers with their names.
type Table struct {
	Name, Title string
	Keys        []string // headings of the columns that name a row
	Columns     []string // headings of the number columns, with units
	Rows        []Row
}

// Row is one line of a table. A missing number is NaN.
type Row struct {
	Keys   []string
	Values []float64
}

// Add appends a row.
func (t *Table) Add(keys []string, values ...float64) { t.Rows = append(t.Rows, Row{keys, values}) }

// Picture contains curves with common axes.
type Picture struct {
	Name, Title, X, Y string
	// LogX and LogY select logarithmic axes, which omit values that are not positive.
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

// Cell returns a number of a table by the keys of its row and the name of its column.
// Both must exist.
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

// Curve returns the points of a picture's curve, which must exist.
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

// Run is an experiment running with one seed.
type Run struct {
	Context context.Context
	Seed    uint32
	params  map[string]float64
	workers int
	// done reports the progress of this seed, from 0 to 1.
	done func(part float64)
}

// NewRun returns a single run with the parameters of the small variant, except for those
// in set.
func NewRun(ctx context.Context, e *Experiment, seed uint32, workers int, set map[string]float64) *Run {
	return &Run{ctx, seed, e.values(true, set), workers, func(float64) {}}
}

// Param returns a parameter, which must exist.
func (r *Run) Param(name string) float64 {
	v, ok := r.params[name]
	if !ok {
		panic("no parameter " + name)
	}
	return v
}

// Int returns an integer parameter.
func (r *Run) Int(name string) int { return int(r.Param(name)) }

// Done reports the progress of this seed, from 0 to 1, for a run without parts.
func (r *Run) Done(part float64) { r.done(part) }
