package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteTable prints the rows as a table.
func (r *Report) WriteTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, cells := range r.table() {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// table returns the cells of a table, the head first.
func (r *Report) table() [][]string {
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return len(row.Over) > 0 }) {
		return r.paired()
	}
	turns := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.OverPeer != nil })
	means := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Mean != nil })
	head := []string{"CASE", "MEASURED", "MIN", "MAX", "GOAL", "MET", "PEER", "UNIT"}
	if turns {
		head = append(head, "/ PEER", "FROM", "TO")
	}
	if means {
		head = append(head, "MEAN (95 %)")
	}
	all := [][]string{head}
	for _, row := range r.Rows {
		goal, met, peer := row.comparison()
		cells := []string{row.Case, row.figure(row.Measured), row.figure(row.Min), row.figure(row.Max), goal, met, peer, row.Unit}
		if o := row.OverPeer; o != nil {
			cells = append(cells, times(o.Median), times(o.Min), times(o.Max))
		} else if turns {
			cells = append(cells, "", "", "")
		}
		if m := row.Mean; m != nil {
			cells = append(cells, fmt.Sprintf("%s (%s to %s)", figure(m.Mean), figure(m.Low), figure(m.High)))
		} else if means {
			cells = append(cells, "")
		}
		all = append(all, cells)
	}
	return all
}

// paired has one line per row: the measured figure with what half of the rounds are within
// (for a comparison with a peer: its confidence interval), the figure here from which a
// ratio was computed, the goal, the peer's figure, and the ratios to floors.
func (r *Report) paired() [][]string {
	all := [][]string{{"CASE", "MEASURED", "WITHIN", "HERE", "GOAL", "MET", "PEER", "FLOORS"}}
	for _, row := range r.Rows {
		goal, met, peer := row.comparison()
		here := ""
		if row.Raw != nil && row.Raw.Median != row.Measured {
			here = figure(row.Raw.Median)
		}
		var floors []string
		for _, over := range row.Over {
			floors = append(floors, fmt.Sprintf("%.2f x %s (%s)", over.Times.Median, over.Floor, figure(over.Raw.Median)))
		}
		all = append(all, []string{row.Case, row.figure(row.Measured) + " " + row.Unit, row.within(), here, goal, met, peer, strings.Join(floors, ", ")})
	}
	return all
}

// within formats the spread of the measured figure.
func (r Row) within() string {
	low, high := r.Min, r.Max
	switch {
	case r.Runs < 2 || r.Raw == nil:
		return ""
	case r.Raw.Median == r.Measured:
		low, high = r.Raw.Low, r.Raw.High
	case len(r.Over) > 0 && r.Over[0].Times.Median == r.Measured:
		low, high = r.Over[0].Times.Low, r.Over[0].Times.High
	}
	return r.figure(low) + "-" + r.figure(high)
}

// comparison formats the goal, whether it was met, and the peer's figure.
func (r Row) comparison() (goal, met, peer string) {
	if r.Goal != nil {
		goal, met = "<= "+r.figure(*r.Goal), "no"
		if r.LowerBound {
			goal = ">= " + r.figure(*r.Goal)
		}
		if *r.Met {
			met = "yes"
		}
	}
	if r.PeerMeasured != nil {
		peer = r.Peer + " " + figure(*r.PeerMeasured)
	}
	return goal, met, peer
}

// UnitTimes is the unit of a row that contains a ratio.
const UnitTimes = "x"

// figure formats a number in the row's unit. Ratios get three decimals.
func (r Row) figure(f float64) string {
	if r.Unit == UnitTimes {
		return strconv.FormatFloat(f, 'f', 3, 64)
	}
	return figure(f)
}

// times formats a ratio. Ratios below 0.1 are written as 1/N.
func times(f float64) string {
	if f > 0 && f < 0.1 {
		return fmt.Sprintf("1/%.0f", 1/f)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}

// figure formats a number with a sensible number of digits.
func figure(f float64) string {
	digits := 0
	if f != float64(int64(f)) && math.Abs(f) < 1000 {
		digits = 1
	}
	if f != 0 && math.Abs(f) < 1 {
		digits = 2
	}
	return strconv.FormatFloat(f, 'f', digits, 64)
}
