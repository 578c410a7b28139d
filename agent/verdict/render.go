package verdict

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
)

// String is the verdict in one line.
func (v Verdict) String() string {
	if v.Agree {
		return fmt.Sprintf("verdict: %d of %d nodes agree", v.Nodes, v.Nodes)
	}
	var words []string
	if n := len(v.Disagreements); n > 0 {
		nodes := map[string]bool{}
		for _, d := range v.Disagreements {
			nodes[d.Node] = true
		}
		words = append(words, fmt.Sprintf("%d of %d nodes disagree (differences: %d)", len(nodes), v.Nodes, n))
	}
	if len(v.Unanswered) > 0 {
		words = append(words, fmt.Sprintf("%d of %d nodes did not answer", len(v.Unanswered), v.Nodes))
	}
	return "verdict: " + strings.Join(words, "; ")
}

// maxLines limits how many disagreements are listed.
const maxLines = 20

// Lines are the verdict, and below it each disagreement and who did not answer.
func (v Verdict) Lines() []string {
	lines := []string{v.String()}
	for i, d := range v.Disagreements {
		if i == maxLines {
			lines = append(lines, fmt.Sprintf("  and %d more differences", len(v.Disagreements)-i))
			break
		}
		lines = append(lines, "  "+d.String())
		if d.Fix != "" {
			lines = append(lines, "    fix: "+d.Fix)
		}
	}
	for _, s := range v.Unanswered {
		lines = append(lines, fmt.Sprintf("  %s did not answer: %s", s.Node, s.Error))
	}
	return lines
}

// Sheet shows the verdict and a table of the nodes.
func Sheet(v Verdict, answers []Answer) status.Sheet {
	s := status.Sheet{Value: v, Lines: v.Lines(), Head: []string{"NODE", "ROLE", "VERSION", "SERVICES", "ROUTES", "PEERS", "PROBLEMS"}}
	for _, a := range answers {
		if a.Err != nil {
			s.Rows = append(s.Rows, []string{a.Name, "no answer"})
			continue
		}
		routes, up := 0, 0
		for _, r := range a.Routes {
			if r.Advertised {
				routes++
			}
		}
		for _, p := range a.Peers {
			if p.State == advertise.Established {
				up++
			}
		}
		s.Rows = append(s.Rows, []string{a.Name, a.Role, a.Version, fmt.Sprint(len(a.Services)), fmt.Sprintf("%d of %d", routes, len(a.Routes)),
			fmt.Sprintf("%d of %d up", up, len(a.Peers)), fmt.Sprint(len(a.Problems))})
	}
	return s
}
