package sysdump

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/agent/verdict"
)

// Finding is something wrong, or remarkable, with its likely cause and what to do about it. Its
// JSON names are an interface.
type Finding struct {
	Severity doctor.Status `json:"severity"`
	Node     string        `json:"node"`
	// Object is what it is about; More further objects are affected in the same way.
	Object string `json:"object"`
	More   int    `json:"more,omitempty"`
	Cause  string `json:"cause"`
	Fix    string `json:"fix,omitempty"`
	// From is the command that shows more.
	From string `json:"from,omitempty"`
}

// String returns "lb1: service default/web and 3 more: backends: no-endpoints".
func (f Finding) String() string {
	s := f.Node + ": " + f.Object
	if f.More > 0 {
		s += fmt.Sprintf(" and %d more", f.More)
	}
	return s + ": " + f.Cause
}

// findings collects the findings of a node.
type findings struct {
	node string
	all  []Finding
}

// add adds a finding, or counts its object if the same was found of another one.
func (f *findings) add(one Finding) {
	one.Node = f.node
	for i, is := range f.all {
		if is.Severity == one.Severity && is.Cause == one.Cause && is.Fix == one.Fix && kindOf(is.Object) == kindOf(one.Object) {
			if is.Object != one.Object {
				f.all[i].More++
			}
			return
		}
	}
	f.all = append(f.all, one)
}

func kindOf(object string) string {
	kind, _, _ := strings.Cut(object, " ")
	return kind
}

// mentions reports whether a finding already has a text.
func (f *findings) mentions(text string) bool {
	return slices.ContainsFunc(f.all, func(one Finding) bool { return strings.Contains(one.Cause, text) })
}

// rank orders severities.
var rank = map[doctor.Status]int{doctor.Broken: 0, doctor.Degraded: 1, doctor.Unknown: 2, doctor.Info: 3}

// sorted orders findings by severity; equal ones stay in order.
func sorted(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	return all
}

// Disagreements returns the findings of a verdict.
func Disagreements(v verdict.Verdict) (all []Finding) {
	for _, d := range v.Disagreements {
		cause := fmt.Sprintf("%s, others: %s", d.Has, d.Others)
		if d.Cause != "" {
			cause += "; " + d.Cause
		}
		all = append(all, Finding{Severity: doctor.Degraded, Node: d.Node, Object: strings.TrimSpace(string(d.Kind) + " " + d.Object), More: d.More,
			Cause: "differs from other nodes: " + cause, Fix: d.Fix, From: "fairlead status --agents, kubectl fairlead status"})
	}
	for _, s := range v.Unanswered {
		all = append(all, Finding{Severity: doctor.Broken, Node: s.Node, Object: "agent", Cause: "does not answer: " + s.Error, Fix: "fairlead status and the log on the node"})
	}
	return all
}
