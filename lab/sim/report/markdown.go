package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// WriteMarkdown writes the verdicts as a table for a documentation page: one line per
// figure and experiment, and one per claim.
func WriteMarkdown(out io.Writer, r *Report) error {
	var b strings.Builder
	b.WriteString("| | verdict | seeds | what is claimed | found | wanted |\n|---|---|---|---|---|---|\n")
	for _, o := range r.Figures {
		markdown(&b, o.Figure, o.Title, o.Seeds, o.Verdict, o.Findings)
	}
	for _, o := range r.Experiments {
		markdown(&b, o.Experiment, o.Question, o.Seeds, o.Verdict, o.Findings)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

var cells = strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ")

// Cell escapes text for a cell of a table in Markdown.
func Cell(text string) string { return cells.Replace(text) }

func markdown(b *strings.Builder, name, title string, seeds int, verdict verdict.Verdict, findings []verdict.Finding) {
	fmt.Fprintf(b, "| **%s** | **%s** | %d | %s | | |\n", Cell(name), verdict, seeds, Cell(title))
	for _, f := range findings {
		text := f.Text
		if f.Reason != "" {
			text += " [" + f.Reason + "]"
		}
		fmt.Fprintf(b, "| | %s | | %s | %s | %s |\n", f.Verdict, Cell(text), Cell(found(f)), Cell(f.Wanted))
	}
}
