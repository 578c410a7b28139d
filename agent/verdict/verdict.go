// Package verdict says whether the nodes of a cluster agree: about releases, frontends,
// backends, Maglev tables, routes, keys and the time. It compares what the nodes report
// (agent/status), and asks nobody itself. Tests need no agent.
package verdict

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/sleep"
)

// Answer is what one node answered, or why it did not.
type Answer struct {
	// Name is how the node was asked: a node of the cluster, or a socket.
	Name string
	status.Status
	Err error
	// Sent and Received are when it was asked, and when the answer was complete, by the
	// clock of who asked. Without them, its clock is not compared.
	Sent, Received time.Time
}

// Kind is what nodes disagree about.
type Kind string

// Kinds.
const (
	Release   Kind = "release"
	DataPlane Kind = "data-plane"
	NodeKey   Kind = "node-key"
	Frontend  Kind = "frontend"
	Backend   Kind = "backend"
	Table     Kind = "table"
	Route     Kind = "route"
	Clock     Kind = "clock"
)

// Disagreement is one node that differs from the others.
type Disagreement struct {
	Kind Kind   `json:"kind"`
	Node string `json:"node"`
	// Object is what it is about; More further objects differ in the same way.
	Object string `json:"object,omitempty"`
	More   int    `json:"more,omitempty"`
	// Has is what the node has, Others what the others have.
	Has    string `json:"has"`
	Others string `json:"others"`
	// Cause is the likely cause, Fix what to do about it.
	Cause string `json:"cause,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// String returns "lb2: backend 172.16.1.10:8080 of TCP 10.1.1.1:80: no new flows, others:
// weight 1; lb2 considers it down: connection refused".
func (d Disagreement) String() string {
	words := d.Node + ": " + strings.TrimSpace(string(d.Kind)+" "+d.Object)
	if d.More > 0 {
		words += fmt.Sprintf(" and %d more", d.More)
	}
	words += fmt.Sprintf(": %s, others: %s", d.Has, d.Others)
	if d.Cause != "" {
		words += "; " + d.Cause
	}
	return words
}

// Silent is a node without an answer.
type Silent struct {
	Node  string `json:"node"`
	Error string `json:"error"`
}

// Verdict is the result. Its JSON names are an interface.
type Verdict struct {
	// Agree means that all nodes answered and agree.
	Agree         bool           `json:"agree"`
	Nodes         int            `json:"nodes"`
	Disagreements []Disagreement `json:"disagreements"`
	Unanswered    []Silent       `json:"unanswered"`
}

// Of compares what nodes answered. A change that is being rolled out is a disagreement, too.
func Of(answers []Answer) Verdict {
	v := Verdict{Nodes: len(answers), Disagreements: []Disagreement{}, Unanswered: []Silent{}}
	var c comparison
	seen := map[string]bool{}
	for _, a := range answers {
		if seen[a.Name] { // several daemons of one node
			a.Name += " (" + a.Role + ")"
		}
		seen[a.Name] = true
		if a.Err != nil {
			v.Unanswered = append(v.Unanswered, Silent{a.Name, a.Err.Error()})
			continue
		}
		c.all = append(c.all, a)
		if a.DataPlane != nil {
			c.balancers = append(c.balancers, a)
		}
	}
	c.releases()
	c.planes()
	c.keys()
	c.frontends()
	c.routes()
	c.clocks()
	v.Disagreements = append(v.Disagreements, c.found...)
	v.Agree = len(v.Disagreements)+len(v.Unanswered) == 0
	return v
}

// Pause is the interval after which nodes that disagree are asked again.
const Pause = 2 * time.Second

// Settled asks nodes, and asks again if they disagree: what differs in another way the second
// time is still being rolled out, and no disagreement.
func Settled(ctx context.Context, ask func(context.Context) []Answer) (Verdict, []Answer) {
	answers := ask(ctx)
	first := Of(answers)
	if len(first.Disagreements) == 0 || !sleep.For(ctx, Pause) {
		return first, answers
	}
	answers = ask(ctx)
	return lasting(first, Of(answers)), answers
}

// lasting keeps the disagreements of the second verdict that the first one had.
func lasting(first, second Verdict) Verdict {
	type key struct {
		Kind
		node, object, has string
	}
	of := func(d Disagreement) key { return key{d.Kind, d.Node, d.Object, d.Has} }
	before := map[key]bool{}
	for _, d := range first.Disagreements {
		before[of(d)] = true
	}
	second.Disagreements = slices.DeleteFunc(second.Disagreements, func(d Disagreement) bool { return !before[of(d)] })
	second.Agree = len(second.Disagreements)+len(second.Unanswered) == 0
	return second
}

// comparison collects disagreements.
type comparison struct {
	all, balancers []Answer
	found          []Disagreement
}

// add adds a disagreement, or counts its object if the same node differs in the same way.
func (c *comparison) add(d Disagreement) {
	for i := range c.found {
		f := &c.found[i]
		if f.Kind == d.Kind && f.Node == d.Node && f.Has == d.Has && f.Others == d.Others && f.Cause == d.Cause {
			f.More++
			return
		}
	}
	c.found = append(c.found, d)
}

// odd returns the value that most nodes have, the first of equally frequent ones, and calls
// each for every node with another one.
func odd[T comparable](nodes []Answer, value func(Answer) T, each func(a Answer, has, others T)) {
	count := map[T]int{}
	for _, a := range nodes {
		count[value(a)]++
	}
	if len(count) < 2 {
		return
	}
	var most T
	for _, a := range nodes {
		if v := value(a); count[v] > count[most] {
			most = v
		}
	}
	for _, a := range nodes {
		if v := value(a); v != most {
			each(a, v, most)
		}
	}
}

func (c *comparison) releases() {
	odd(c.all, func(a Answer) string { return a.Version }, func(a Answer, has, others string) {
		c.add(Disagreement{Kind: Release, Node: a.Name, Has: has, Others: others,
			Cause: "an upgrade has not reached every node", Fix: "complete the upgrade, or roll it back (docs/upgrade.md)"})
	})
}

func (c *comparison) planes() {
	odd(c.balancers, func(a Answer) string { return a.DataPlane.Kind }, func(a Answer, has, others string) {
		c.add(Disagreement{Kind: DataPlane, Node: a.Name, Has: has, Others: others,
			Cause: "they select different backends for the same connection", Fix: "fairlead doctor on the node shows why, or set the same --dataplane everywhere"})
	})
}

func (c *comparison) keys() {
	var tagging []Answer // routers and reflectors have no keys
	for _, a := range c.all {
		if a.DataPlane != nil || a.DSRAgent != nil {
			tagging = append(tagging, a)
		}
	}
	odd(tagging, func(a Answer) string {
		if a.NodeKeys == nil {
			return ""
		}
		return a.NodeKeys.Sends
	}, func(a Answer, has, others string) {
		c.add(Disagreement{Kind: NodeKey, Node: a.Name, Has: cmp.Or(has, "none"), Others: cmp.Or(others, "none"),
			Cause: "packets between these nodes have tags that others reject", Fix: "use the same --node-key-file everywhere"})
	})
}
