package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/source"
)

// stored returns the problems of what the agent stores.
func (a Agent) stored() []problem.Problem {
	problems := stateProblems(a.State)
	if a.Journal == nil {
		return problems
	}
	if err := a.Journal(); err != nil {
		problems = append(problems, problem.Failed("journal", err.Error()))
	}
	return problems
}

// stateProblems returns the problems that prevent an agent from persisting its state.
func stateProblems(dir *statedir.Dir) (problems []problem.Problem) {
	for _, err := range dir.Problems() {
		problems = append(problems, problem.Problem{
			Object: "state directory " + dir.Path(), Message: err.Error() + "; a restart while a manifest is invalid would lose the last valid version",
		})
	}
	return problems
}

// maxLines limits the lines of a list in the overview.
const maxLines = 20

// list writes a list below a label: the count, then one line each. What does not fit is
// counted, and more says where to find it.
func (t *table) list(label string, n int, lines []string, more string) {
	t.fact(label, number(n))
	for i, line := range lines {
		if i == maxLines-1 && len(lines) > maxLines {
			t.fact("", fmt.Sprintf("and %d more lines: %s", len(lines)-i, more))
			return
		}
		t.fact("", line)
	}
}

// alike is the number of identical problems that are still listed individually.
const alike = 3

// problemLines formats problems, one per line. Identical problems of many objects share a
// line.
func problemLines(problems []problem.Problem) (lines []string) {
	type says struct{ field, message string }
	count := map[says]int{}
	for _, p := range problems {
		count[says{p.Field, p.Message}]++
	}
	for _, p := range problems {
		switch n := count[says{p.Field, p.Message}]; {
		case n == 0: // covered by the first line
		case n <= alike:
			lines = append(lines, p.String())
		default:
			count[says{p.Field, p.Message}] = 0
			first := strings.TrimSuffix(problem.Problem{Where: p.Where, Object: p.Object}.String(), ": ")
			same := problem.Problem{Field: p.Field, Message: p.Message}
			lines = append(lines, fmt.Sprintf("%s and %d more: %s", first, n-1, same))
		}
	}
	return lines
}

// staleLines formats stale objects, one per line.
func staleLines(all []source.Stale, now time.Time) (lines []string) {
	for _, o := range all {
		what := problem.Problem{Where: o.Where, Object: o.Object, Message: "the last valid version is in use, since " + moment(o.Since, now)}
		lines = append(lines, what.String())
	}
	return lines
}

// moment formats a time and how long ago it was.
func moment(then, now time.Time) string {
	return fmt.Sprintf("%s (%s ago)", then.UTC().Format(time.RFC3339), Age(then, now))
}

// staleServices returns the time since which Services, "namespace/name", are stale: that
// of the earliest of their objects.
func staleServices(all []source.Stale) map[string]time.Time {
	since := map[string]time.Time{}
	for _, o := range all {
		if was, ok := since[o.Service]; o.Service != "" && (!ok || o.Since.Before(was)) {
			since[o.Service] = o.Since
		}
	}
	return since
}
