// Package report writes reports: the results of the paper's figures and of the other
// experiments, as tables and pictures, as one JSON file, and as one HTML page with the
// verdicts.
package report

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/lvs"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"found": found, "words": words, "number": number}).Parse(reportHTML))

// Report contains the results of figures and experiments. Its JSON field names are
// stable.
type Report struct {
	lvs.Report
	Experiments []experiments.Outcome `json:"experiments,omitempty"`
}

// Write writes a report into a folder: report.html, results.json, a CSV, SVG and PNG file
// for each figure and each experiment's picture that has curves, and a CSV file for each
// experiment's table. It returns the path of the page.
func Write(dir string, r *Report) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	page := struct {
		*Report
		Version  string
		Pictures map[string]template.HTML
	}{r, version.String(), map[string]template.HTML{}}
	for _, p := range r.pictures() {
		svg, err := p.write(dir)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		page.Pictures[p.name] = svg
	}
	for i := range r.Experiments {
		if err := writeTables(dir, &r.Experiments[i]); err != nil {
			return "", err
		}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(text, '\n'), 0o644); err != nil {
		return "", err
	}
	var html bytes.Buffer
	if err := reportTemplate.Execute(&html, page); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "report.html")
	return path, os.WriteFile(path, html.Bytes(), 0o644)
}

// pictures returns everything that can be drawn.
func (r *Report) pictures() (all []picture) {
	for _, o := range r.Figures {
		all = append(all, picture{name: o.Figure, title: o.Title, x: o.X, y: o.Y, curves: o.Curves, seeds: o.Seeds})
	}
	for _, o := range r.Experiments {
		for _, p := range o.Pictures {
			all = append(all, picture{o.Experiment + "-" + p.Name, p.Title, p.X, p.Y, p.LogX, p.LogY, p.Curves, o.Seeds})
		}
	}
	return slices.DeleteFunc(all, func(p picture) bool { return len(p.curves) == 0 })
}

// write writes a picture and its points, and returns it for the page.
func (p *picture) write(dir string) (template.HTML, error) {
	svg, png, err := p.draw()
	if err != nil {
		return "", err
	}
	points, err := p.points()
	if err != nil {
		return "", err
	}
	for ending, content := range map[string][]byte{".svg": svg, ".png": png, ".csv": points} {
		if err := os.WriteFile(filepath.Join(dir, p.name+ending), content, 0o644); err != nil {
			return "", err
		}
	}
	if _, rest, ok := bytes.Cut(svg, []byte("<svg")); ok { // without the XML header
		svg = append([]byte("<svg"), rest...)
	}
	return template.HTML(svg), nil
}

// points returns a picture's points as CSV.
func (p *picture) points() ([]byte, error) {
	rows := [][]string{{"curve", "x", "mean", "low", "high", "seeds"}}
	for _, c := range p.curves {
		for _, at := range c.Points {
			rows = append(rows, []string{c.Name, plain(at.X), plain(at.Mean), plain(at.Low), plain(at.High), strconv.Itoa(p.seeds)})
		}
	}
	return asCSV(rows)
}

func asCSV(rows [][]string) ([]byte, error) {
	var out bytes.Buffer
	err := csv.NewWriter(&out).WriteAll(rows)
	return out.Bytes(), err
}

// writeTables writes each table of an experiment to a file, with one line per number.
func writeTables(dir string, o *experiments.Outcome) error {
	for _, t := range o.Tables {
		rows := [][]string{append(slices.Clone(t.Keys), "measure", "mean", "low", "high", "seeds")}
		for _, r := range t.Rows {
			for i, e := range r.Values {
				if e != nil {
					rows = append(rows, append(slices.Clone(r.Keys), t.Columns[i], plain(e.Mean), plain(e.Low), plain(e.High), strconv.Itoa(o.Seeds)))
				}
			}
		}
		text, err := asCSV(rows)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, o.Experiment+"-"+t.Name+".csv"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func number(x float64) string { return strconv.FormatFloat(x, 'g', 5, 64) }

// found formats the measured quantity of a claim.
func found(f verdict.Finding) string {
	switch e := f.Found; {
	case e == nil:
		return ""
	case f.Wanted == "true" && e.Mean == 1:
		return "true"
	case f.Wanted == "true" && e.Mean == 0:
		return "false"
	default:
		return words(e)
	}
}

// words formats a mean and its confidence interval.
func words(e *verdict.Estimate) string {
	switch {
	case e == nil:
		return "-"
	case e.Low == e.High:
		return number(e.Mean)
	}
	return fmt.Sprintf("%s (%s to %s)", number(e.Mean), number(e.Low), number(e.High))
}

// WriteTable prints the results: the tables of the experiments, and then the verdicts,
// one line per figure and experiment, followed by one line per claim.
func WriteTable(out io.Writer, r *Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, o := range r.Experiments {
		for _, t := range o.Tables {
			writeMeans(w, &t)
		}
	}
	fmt.Fprintln(w, "FIGURE\tVERDICT\tFOUND\tWANTED\tCLAIM")
	for _, o := range r.Figures {
		writeFindings(w, o.Figure, o.Title, o.Verdict, o.Findings)
	}
	for _, o := range r.Experiments {
		writeFindings(w, o.Experiment, o.Question, o.Verdict, o.Findings)
	}
	return w.Flush()
}

// writeMeans writes a table and an empty line.
func writeMeans(w io.Writer, t *experiments.Means) {
	fmt.Fprintf(w, "%s\n%s\n", t.Title, strings.Join(append(slices.Clone(t.Keys), t.Columns...), "\t"))
	for _, r := range t.Rows {
		cells := slices.Clone(r.Keys)
		for _, e := range r.Values {
			cells = append(cells, words(e))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	fmt.Fprintln(w)
}

func writeFindings(w io.Writer, name, title string, verdict verdict.Verdict, findings []verdict.Finding) {
	fmt.Fprintf(w, "%s\t%s\t\t\t%s\n", name, verdict, title)
	for _, f := range findings {
		text := f.Text
		if f.Reason != "" {
			text += " [" + f.Reason + "]"
		}
		fmt.Fprintf(w, "\t- %s\t%s\t%s\t%s\n", f.Verdict, found(f), f.Wanted, text)
	}
}
