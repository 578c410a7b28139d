package papers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/sim/report"
)

// shownFindings limits the findings of a row in Markdown.
const shownFindings = 3

// Markdown returns the verdicts of the report as a page of the documentation.
func (r *Report) Markdown() string {
	var b strings.Builder
	begun, took, versions := r.runs()
	fmt.Fprintf(&b, "# The papers, reproduced: results of %s\n\n", begun.Format("2 January 2006"))
	fmt.Fprintf(&b, "Written by `fairlead-lab papers` ([method and verdicts](../papers.md)). Fairlead %s, %s, Linux %s, length `%s`; the experiments took %.0f minutes.\n\n",
		strings.Join(versions, ", "), r.Machine, r.Kernel, r.Length, took.Minutes())
	fmt.Fprintf(&b, "%s.\n", r.Summary())
	last := ""
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Verdict == NoClaim {
			continue
		}
		if row.Paper != last {
			last = row.Paper
			fmt.Fprintf(&b, "\n## %s: %s\n\n| item | claim | verdict | found, with its 95 %% interval | why |\n|---|---|---|---|---|\n", row.Paper, row.PaperTitle)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.ID(), report.Cell(row.Claim), bold(row.Verdict), report.Cell(row.found()), report.Cell(row.Reason))
	}
	return b.String()
}

// runs returns when the experiments began, how long they took, and their versions.
func (r *Report) runs() (begun time.Time, took time.Duration, versions []string) {
	counted := map[string]bool{}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Started == nil || counted[row.Experiment] {
			continue
		}
		counted[row.Experiment] = true
		took += time.Duration(row.Seconds * float64(time.Second))
		if begun.IsZero() || row.Started.Before(begun) {
			begun = *row.Started
		}
		versions = append(versions, row.Version)
	}
	slices.Sort(versions)
	return begun, took, slices.Compact(versions)
}

// found returns the findings that decide the verdict.
func (r *Result) found() string {
	var all []string
	for _, f := range r.Findings {
		if f.Verdict == r.Verdict && f.Found != nil {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s: %s %s", f.Test, interval(f.Found), f.Unit))+", wanted "+f.Wanted)
		}
	}
	if more := len(all) - shownFindings; more > 0 {
		all = append(all[:shownFindings], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// bold emphasizes what does not hold.
func bold(v Verdict) string {
	if v == DoesNot || v == Failed {
		return "**" + string(v) + "**"
	}
	return string(v)
}
