package sysdump

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/doctor"
)

// maxShown limits the findings of a severity in the summary.
const maxShown = 50

// Summary is the text on top of a dump: head describes what was dumped, left what is missing.
func Summary(title string, now time.Time, head []string, all []Finding, left []string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "Fairlead sysdump of %s, %s\n", title, now.UTC().Format(time.RFC3339))
	for _, line := range head {
		fmt.Fprintln(&b, line)
	}
	count := map[doctor.Status]int{}
	for _, f := range all {
		count[f.Severity]++
	}
	fmt.Fprintf(&b, "\nfindings: %d broken, %d degraded, %d info\n", count[doctor.Broken], count[doctor.Degraded], count[doctor.Info])
	shown, more := map[doctor.Status]int{}, 0
	for _, f := range sorted(all) {
		if shown[f.Severity]++; shown[f.Severity] > maxShown {
			more++
			continue
		}
		fmt.Fprintf(&b, "\n%-8s  %s\n", f.Severity, f)
		if f.Fix != "" {
			fmt.Fprintf(&b, "          fix: %s\n", f.Fix)
		}
		if f.From != "" {
			fmt.Fprintf(&b, "          see: %s\n", f.From)
		}
	}
	if more > 0 {
		fmt.Fprintf(&b, "\nand %d more in %s\n", more, FindingsFile)
	}
	if len(left) > 0 {
		fmt.Fprintf(&b, "\nnot collected:\n")
		for _, l := range left {
			fmt.Fprintf(&b, "  %s\n", l)
		}
	}
	return []byte(b.String())
}
