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

func markdown(b *strings.Builder, name, title string, seeds int, verdict verdict.Verdict, findings []verdict.Finding) {
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace
	fmt.Fprintf(b, "| **%s** | **%s** | %d | %s | | |\n", cell(name), verdict, seeds, cell(title))
	for _, f := range findings {
		text := f.Text
		if f.Reason != "" {
			text += " [" + f.Reason + "]"
		}
		fmt.Fprintf(b, "| | %s | | %s | %s | %s |\n", f.Verdict, cell(text), cell(found(f)), cell(f.Wanted))
	}
}
