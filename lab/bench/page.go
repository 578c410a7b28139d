package bench

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/design"
)

// WritePage writes the report to DIR/NAME.html, with its charts, and returns that path.
func (r *Report) WritePage(dir string) (path string, err error) {
	body, err := r.body()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path = filepath.Join(dir, r.Name+".html")
	return path, os.WriteFile(path, design.Page("Benchmark "+r.Name, body, ""), 0o644)
}

func (r *Report) body() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "<h1>Benchmark <code>%s</code></h1>\n%s", html.EscapeString(r.Name), r.verdict())
	fmt.Fprintf(&b, "<p class=\"muted\">%s</p>\n", html.EscapeString(fmt.Sprintf("%s, %s, Linux %s, commit %s", r.Started.Format(time.DateTime), r.Machine, r.Kernel, r.Commit)))
	charts := r.Charts
	if goals := r.goals(); len(goals.Bars) > 0 {
		charts = append([]design.Chart{goals}, charts...)
	}
	for _, c := range charts {
		figure, err := design.Figure(c)
		if err != nil {
			return "", err
		}
		b.WriteString(figure)
	}
	r.htmlTable(&b)
	if len(r.Notes) > 0 {
		b.WriteString("<ul>\n")
		for _, note := range r.Notes {
			fmt.Fprintf(&b, "<li>%s</li>\n", html.EscapeString(note))
		}
		b.WriteString("</ul>\n")
	}
	return b.String(), nil
}

// verdict is the headline: how many goals were met.
func (r *Report) verdict() string {
	goals, missed := 0, r.Missed()
	for _, row := range r.Rows {
		if row.Met != nil {
			goals++
		}
	}
	switch {
	case goals == 0:
		return ""
	case len(missed) == 0:
		return fmt.Sprintf("<p class=\"verdict\">All %d goals are met.</p>\n", goals)
	}
	return fmt.Sprintf("<p class=\"verdict bad\">%d of %d goals are missed: %s.</p>\n", len(missed), goals, html.EscapeString(strings.Join(missed, "; ")))
}

// goals draws each figure as a share of its goal. For lower bounds it draws the inverse: a
// bar that is beyond the mark always misses.
func (r *Report) goals() design.Chart {
	c := design.Chart{Title: "Measured ÷ goal (goal ÷ measured where more is better)", Kind: design.Bars, Y: design.Axis{Log: true}}
	for _, row := range r.Rows {
		if row.Goal == nil || *row.Goal <= 0 || row.Measured <= 0 {
			continue
		}
		share := row.Measured / *row.Goal
		if row.LowerBound {
			share = 1 / share
		}
		note := fmt.Sprintf("(%s %s)", row.figure(row.Measured), row.Unit)
		c.Bars = append(c.Bars, design.Bar{Name: row.Case, Value: share, Goal: 1, Note: note, Bad: !*row.Met})
	}
	return c
}

func (r *Report) htmlTable(b *strings.Builder) {
	b.WriteString("<div class=\"wide\"><table>\n")
	for i, cells := range r.table() {
		b.WriteString("<tr>")
		for _, cell := range cells {
			tag := "td"
			if i == 0 {
				tag, cell = "th", strings.ToLower(cell)
			}
			fmt.Fprintf(b, "<%s>%s</%s>", tag, html.EscapeString(cell), tag)
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table></div>\n")
}
