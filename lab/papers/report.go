package papers

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Report contains all rows with their verdicts. Its JSON field names are stable.
type Report struct {
	Version string          `json:"version"`
	Machine string          `json:"machine"`
	Kernel  string          `json:"kernel"`
	Length  Length          `json:"length"`
	Count   map[Verdict]int `json:"count"`
	Rows    []Result        `json:"rows"`
}

// Result is a row with its verdict.
type Result struct {
	Paper      string  `json:"paper"`
	Item       string  `json:"item"`
	PaperTitle string  `json:"paperTitle"`
	Title      string  `json:"title"`
	Claim      string  `json:"claim,omitempty"`
	Verdict    Verdict `json:"verdict"`
	Reason     string  `json:"reason,omitempty"`
	Values     []Value `json:"values"`
	Theirs     string  `json:"setupTheirs,omitempty"`
	Ours       string  `json:"setupOurs,omitempty"`
	Note       string  `json:"note,omitempty"`
	// N and Interval are those of the test that decides the verdict.
	N           int               `json:"n"`
	Interval    *verdict.Estimate `json:"interval,omitempty"`
	Findings    []Finding         `json:"findings"`
	Experiment  string            `json:"experiment,omitempty"`
	Repetitions int               `json:"repetitions"`
	Command     string            `json:"command,omitempty"`
	Seconds     float64           `json:"seconds"`
	// Version and Started are of the first repetition.
	Version string     `json:"version,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	Curves  []Curve    `json:"curves,omitempty"`

	plot Plot
}

// ID returns the name of the row in commands.
func (r *Result) ID() string { return r.Paper + "/" + r.Item }

// Picture draws the row's curves.
func (r *Result) Picture() (template.HTML, error) { return draw(r.plot, r.ID()+": "+r.Title, r.Curves) }

// report judges all rows on the results that exist.
func (o Options) report(failed map[string]error) *Report {
	r := &Report{Version: version.String(), Machine: bench.Machine(), Kernel: version.Release(), Length: o.Length, Count: map[Verdict]int{}}
	runs := map[string][]*Measured{}
	for _, e := range experiments {
		for n := range maxRepetitions {
			if m := load(o.Dir, o.Length, e.Name, n+1); m != nil {
				runs[e.Name] = append(runs[e.Name], m)
			}
		}
	}
	for _, p := range All() {
		for i := range p.Rows {
			row := &p.Rows[i]
			result := p.result(row, runs[row.Experiment], failed[row.Experiment])
			r.Count[result.Verdict]++
			r.Rows = append(r.Rows, result)
		}
	}
	return r
}

func (p *Paper) result(row *Row, runs []*Measured, failed error) Result {
	if row.Figure != "" {
		runs = having(row.Figure, runs)
	}
	r := Result{
		Paper: p.ID, PaperTitle: p.Title, Item: row.Item, Title: row.Title, Claim: row.Claim, Values: append([]Value{}, row.Values...), Theirs: row.Theirs, Ours: row.Ours,
		Note: row.Note, Experiment: row.Experiment, Findings: []Finding{}, Repetitions: len(runs), plot: row.Plot,
	}
	if row.Experiment != "" {
		r.Command = "fairlead-lab papers --only " + r.ID()
	}
	r.Curves = row.curves(runs)
	switch {
	case row.Drawing != "":
		r.Verdict, r.Reason = NoClaim, row.Drawing
	case row.Unknowable != "":
		r.Verdict, r.Reason = CannotKnow, row.Unknowable
	case row.Missing != "":
		r.Verdict, r.Reason = Missing, row.Missing
	case failed != nil:
		r.Verdict, r.Reason = Failed, failed.Error()
	case len(runs) == 0:
		r.Verdict = NotMeasured
	default:
		r.measured(row, runs)
	}
	return r
}

// having returns the repetitions that contain a simulated figure.
func having(figure string, runs []*Measured) (some []*Measured) {
	for _, m := range runs {
		if m.figure(figure) != nil {
			some = append(some, m)
		}
	}
	return some
}

// measured judges a row.
func (r *Result) measured(row *Row, runs []*Measured) {
	if row.Figure != "" {
		r.Findings = simulated(row.Figure, runs)
		r.Ours = strings.Join(append([]string{row.Ours}, runs[0].figure(row.Figure).Conditions...), "; ")
	}
	for _, t := range row.Tests {
		r.Findings = append(r.Findings, t.judge(runs))
	}
	r.Verdict, r.Reason = sum(r.Findings)
	for _, f := range r.Findings {
		if f.Verdict == r.Verdict && f.Found != nil && r.Interval == nil {
			r.N, r.Interval = f.N, f.Found
		}
	}
	if len(runs) == 1 && (r.Verdict == Holds || r.Verdict == DoesNot) {
		r.addReason("one repetition only: another one may differ")
	}
	r.Version, r.Started = runs[0].Version, &runs[0].Started
	for _, m := range runs {
		r.Seconds += m.Seconds
		if m.Failure != "" {
			r.addReason(fmt.Sprintf("repetition %d had failed before: %s", m.Repetition, m.Failure))
		}
	}
}

func (r *Result) addReason(text string) {
	r.Reason = strings.TrimPrefix(r.Reason+"; "+text, "; ")
}

//go:embed report.html
var reportHTML string

const pageCSS = `
.holds { color: var(--good) } .does-not-hold, .failed { color: var(--bad) }
.unstable, .missing, .cannot-be-known-here { color: var(--warn) } .no-claim, .not-run { color: var(--muted) }
section { margin: 16px 0 }
td b { white-space: nowrap }`

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"number": number, "interval": interval, "class": func(v Verdict) string { return strings.ReplaceAll(string(v), " ", "-") },
	"verdicts": func() []Verdict { return Verdicts },
}).Parse(reportHTML))

// interval formats a mean with its confidence interval.
func interval(e *verdict.Estimate) string {
	if e.Low == e.High {
		return number(e.Mean)
	}
	return fmt.Sprintf("%s (%s to %s)", number(e.Mean), number(e.Low), number(e.High))
}

// Write writes index.html, papers.md and papers.json into a folder, and returns the path of the
// page.
func (r *Report) Write(dir string) (string, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	var html bytes.Buffer
	if err := page.Execute(&html, r); err != nil {
		return "", err
	}
	_, err = bench.WriteFiles(dir, map[string][]byte{
		"papers.json": append(text, '\n'), "papers.md": []byte(r.Markdown()), "index.html": design.Page("The papers, reproduced", html.String(), pageCSS),
	})
	return filepath.Join(dir, "index.html"), err
}

// WriteTable prints the selected rows and the number of rows with each verdict.
func (r *Report) WriteTable(out io.Writer, only Selection) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ITEM\tVERDICT\tFOUND\tN\tCLAIM")
	for i := range r.Rows {
		row := &r.Rows[i]
		if !only.has(row.ID()) {
			continue
		}
		found := ""
		if row.Interval != nil {
			found = interval(row.Interval)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", row.ID(), row.Verdict, found, row.N, row.Claim)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, r.Summary())
	return err
}

// Summary returns the number of rows with each verdict.
func (r *Report) Summary() string {
	var parts []string
	for _, v := range Verdicts {
		if n := r.Count[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	return fmt.Sprintf("%d rows: %s", len(r.Rows), strings.Join(parts, ", "))
}
