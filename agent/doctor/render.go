package doctor

import (
	"fmt"
	"strings"
)

// Lines formats a report for display: the findings by area, and the broken and degraded
// ones again at the end.
func (r Report) Lines() []string {
	roles := make([]string, len(r.Roles))
	for i, role := range r.Roles {
		roles[i] = string(role)
	}
	lines := []string{fmt.Sprintf("Linux %s, roles %s", r.Kernel, strings.Join(roles, ", "))}
	area := ""
	for _, f := range r.Findings {
		if f.Area != area {
			area = f.Area
			lines = append(lines, "", area)
		}
		lines = append(lines, f.lines()...)
	}
	lines = append(lines, "", r.Summary())
	for _, s := range []Status{Broken, Degraded} {
		for _, f := range r.Findings {
			if f.Status == s {
				lines = append(lines, f.lines()...)
			}
		}
	}
	return lines
}

func (f Finding) lines() []string {
	lines := []string{fmt.Sprintf("  %-8s  %s: %s", f.Status, f.Check, f.Message)}
	if f.Fix != "" {
		lines = append(lines, "            fix: "+f.Fix)
	}
	return lines
}

// Summary counts the findings: "2 broken, 1 degraded, 31 ok".
func (r Report) Summary() string {
	words := []string{fmt.Sprintf("%d broken", r.Broken), fmt.Sprintf("%d degraded", r.Degraded)}
	for _, s := range []Status{Unknown, Info} {
		if n := r.Count(s); n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(append(words, fmt.Sprintf("%d ok", r.Count(OK))), ", ")
}
