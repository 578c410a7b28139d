package status

import (
	"fmt"
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
