// Package page puts the results of the paper's figures into files: a table and a
// picture of each, all of them as JSON, and one HTML page with the verdicts.
package page

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
	"strconv"
	"text/tabwriter"

	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/sim/lvs"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"found": found}).Parse(reportHTML))

// Write puts a report into a folder: report.html, results.json, and a CSV, SVG
// and PNG file for each figure that has curves. It gives the path of the page.
func Write(dir string, r *lvs.Report) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	page := struct {
		*lvs.Report
		Version  string
		Pictures map[string]template.HTML
	}{r, version.String(), map[string]template.HTML{}}
	for i := range r.Figures {
		o := &r.Figures[i]
		if len(o.Curves) == 0 {
			continue
		}
		svg, err := figure(dir, o)
		if err != nil {
			return "", fmt.Errorf("%s: %w", o.Figure, err)
		}
		page.Pictures[o.Figure] = svg
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

// figure writes what there is of one, and gives its picture for the page.
func figure(dir string, o *lvs.Outcome) (template.HTML, error) {
	svg, png, err := pictures(o)
	if err != nil {
		return "", err
	}
	table, err := table(o)
	if err != nil {
		return "", err
	}
	for ending, content := range map[string][]byte{".svg": svg, ".png": png, ".csv": table} {
		if err := os.WriteFile(filepath.Join(dir, o.Figure+ending), content, 0o644); err != nil {
			return "", err
		}
	}
	if _, rest, ok := bytes.Cut(svg, []byte("<svg")); ok { // without the head of an XML file
		svg = append([]byte("<svg"), rest...)
	}
	return template.HTML(svg), nil
}

// table gives a figure's points as CSV.
func table(o *lvs.Outcome) ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	rows := [][]string{{"curve", "x", "mean", "low", "high", "seeds"}}
	for _, c := range o.Curves {
		for _, p := range c.Points {
			rows = append(rows, []string{c.Name, plain(p.X), plain(p.Mean), plain(p.Low), plain(p.High), strconv.Itoa(o.Seeds)})
		}
	}
	err := w.WriteAll(rows)
	return out.Bytes(), err
}

func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func number(x float64) string { return strconv.FormatFloat(x, 'g', 5, 64) }

// found words what a claim's quantity came to.
func found(f lvs.Finding) string {
	switch e := f.Found; {
	case e == nil:
		return ""
	case f.Wanted == "true" && e.Mean == 1:
		return "true"
	case f.Wanted == "true" && e.Mean == 0:
		return "false"
	case e.Low == e.High:
		return number(e.Mean)
	default:
		return fmt.Sprintf("%s (%s to %s)", number(e.Mean), number(e.Low), number(e.High))
	}
}

// WriteTable writes the verdicts for people: a line for each figure, and below
// it one for each claim.
func WriteTable(out io.Writer, r *lvs.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tVERDICT\tFOUND\tWANTED\tCLAIM")
	for _, o := range r.Figures {
		fmt.Fprintf(w, "%s\t%s\t\t\t%s\n", o.Figure, o.Verdict, o.Title)
		for _, f := range o.Findings {
			says := f.Says
			if f.Reason != "" {
				says += " [" + f.Reason + "]"
			}
			fmt.Fprintf(w, "\t- %s\t%s\t%s\t%s\n", f.Verdict, found(f), f.Wanted, says)
		}
	}
	return w.Flush()
}
