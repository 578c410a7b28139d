// Package papers reproduces the five papers behind Fairlead. It has a row for each of
// their numbered figures and tables, and for the numbers in their text: the paper's claim
// and values, how they are measured here, and a test of the claim. The experiments are
// those of lab/bench, lab/demo and lab/sim; this package runs them, repeats them, judges
// the claims and writes one report. There is one file per paper.
package papers

import (
	"fmt"
	"slices"
	"strings"
)

// Paper is one of the papers.
type Paper struct {
	ID, Title string
	Rows      []Row
}

// Row is a figure, a table, or a claim in the text of a paper. A row has exactly one of
// Experiment, Missing, Unknowable and Drawing.
type Row struct {
	// Item is the row's name within its paper, such as fig10a. What the paper does not
	// number has a name instead.
	Item, Title string
	// Claim is what the paper claims, in one sentence.
	Claim string
	// Values contains what the paper prints, with units.
	Values []Value
	// Theirs and Ours are the set-ups.
	Theirs, Ours string
	// Note explains how to read the result.
	Note string

	// Experiment measures the row, and Tests judge the claim.
	Experiment string
	Tests      []Test
	// Figure is the figure of the simulator that has the claims, if Tests is empty.
	Figure string
	// Missing is the experiment that does not exist yet.
	Missing string
	// Unknowable is why the claim cannot be tested here.
	Unknowable string
	// Drawing is what a figure without a claim shows, and where it is here.
	Drawing string

	Plot Plot
}

// Value is a number or a few words that a paper prints.
type Value struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// id is the name of a row in commands and in the report.
func (p *Paper) id(r *Row) string { return p.ID + "/" + r.Item }

// All returns the five papers.
func All() []Paper {
	return []Paper{portable(), simulation(), services(), japanese(), networks()}
}

// Selection contains patterns of rows: 000, 000/fig10a, or 000/fig10 for 10a to 10c. An
// empty selection matches everything.
type Selection []string

// has reports whether a row is selected.
func (s Selection) has(id string) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(pattern string) bool {
		rest, ok := strings.CutPrefix(id, pattern)
		return ok && (rest == "" || rest[0] < '0' || rest[0] > '9')
	})
}

// Validate reports patterns that match nothing.
func (s Selection) Validate() error {
	for _, pattern := range s {
		if !slices.ContainsFunc(IDs(), Selection{pattern}.has) {
			return fmt.Errorf("--only: no paper has a row %q", pattern)
		}
	}
	return nil
}

// IDs returns the names of all rows.
func IDs() (all []string) {
	for _, p := range All() {
		for i := range p.Rows {
			all = append(all, p.id(&p.Rows[i]))
		}
	}
	return all
}

// experimentsOf returns the experiments that a selection needs, in the order in which they
// run.
func experimentsOf(s Selection) (all []Experiment) {
	needed := map[string]bool{}
	for _, p := range All() {
		for i := range p.Rows {
			if r := &p.Rows[i]; s.has(p.id(r)) {
				needed[r.Experiment] = true
			}
		}
	}
	for _, e := range experiments {
		if needed[e.Name] {
			all = append(all, e)
		}
	}
	return all
}
