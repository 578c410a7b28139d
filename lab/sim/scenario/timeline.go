package scenario

import (
	"cmp"
	"fmt"
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
	"slices"
)

// state is the state of a member or a link.
type state uint8

const (
	there state = iota
	draining
	absent
)

// moves contains the next state for each action and state. Missing ones are impossible.
var moves = map[Action]map[state]state{
	Dies:     {there: absent, draining: absent},
	Leaves:   {there: absent, draining: absent},
	Drains:   {there: draining},
	Joins:    {absent: there, draining: there},
	Cuts:     {there: absent},
	Restores: {absent: there},
}

// events sorts the events by time, and rejects impossible ones.
func (c *checker) events() {
	t := &timeline{checker: c, states: map[string]state{}, last: map[string]*Event{}}
	for name, m := range c.who {
		if !m.present {
			t.states[name] = absent
		}
	}
	slices.SortStableFunc(c.s.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	for i := range c.s.Events {
		t.event(&c.s.Events[i])
	}
}

// timeline contains the states at a given time.
type timeline struct {
	*checker
	states map[string]state
	last   map[string]*Event // the last event of each subject
}

func (t *timeline) event(e *Event) {
	field := "events: at " + reading.Show(e.At, reading.Seconds) + ": " + string(e.Action)
	silent := e.Action == Dies || e.Action == Cuts
	switch {
	case e.At >= t.s.Duration:
		t.Refuse(e.Line, field, "it is at the end, %s, or after it", reading.Show(t.s.Duration, reading.Seconds))
	case e.Noticed >= 0 && !silent:
		t.Refuse(e.Line, field, "noticed applies to dies and cuts only: %s is not silent", e.Action)
	case e.Noticed < 0 && silent:
		e.Noticed = defaultNoticed
		if g := t.groupOf(e.What[0]); len(e.What) == 1 && g != nil && g.Role == Server {
			e.Noticed = cmp.Or(g.Missed, defaultMissed)
		}
	}
	if len(e.What) == 2 {
		t.cut(e, field)
		return
	}
	for _, name := range t.find(e.What[0], field, Balancer, Server) {
		t.happens(e, name, field)
	}
}

// groupOf returns the group of the members that a name refers to, or nil.
func (t *timeline) groupOf(ref Ref) *Group {
	if m := t.who[ref.Name]; m != nil {
		return m.group
	}
	return t.groups[ref.Name]
}

// cut handles the links between two names.
func (t *timeline) cut(e *Event, field string) {
	for _, a := range t.end(e.What[0], field) {
		for _, b := range t.end(e.What[1], field) {
			if key := ends(a, b); t.links[key] == 0 {
				t.Refuse(e.Line, field, "%s and %s have no link", a, b)
			} else {
				t.happens(e, "the link from "+key[0]+" to "+key[1], field)
			}
		}
	}
}

// end returns the members that can be the end of a link, including a switched LAN.
func (t *timeline) end(ref Ref, field string) []string {
	if t.lans[ref.Name] != nil {
		return []string{ref.Name}
	}
	return t.find(ref, field)
}

func (t *timeline) happens(e *Event, subject, field string) {
	was, last := t.states[subject], t.last[subject]
	next, ok := moves[e.Action][was]
	switch {
	case last != nil && last.At == e.At:
		t.Refuse(e.Line, field, "%s has another event at this time, in line %d", subject, last.Line)
	case !ok:
		t.Refuse(e.Line, field, "%s %s", subject, t.as(was, last))
	default:
		t.states[subject], t.last[subject] = next, e
	}
}

// as describes a state in which an event is impossible.
func (t *timeline) as(was state, last *Event) string {
	since := ""
	if last != nil {
		since = fmt.Sprintf(" since %s, line %d", reading.Show(last.At, reading.Seconds), last.Line)
	}
	switch {
	case was == draining:
		return "drains already" + since
	case was == there && last == nil:
		return "is up from the beginning"
	case was == there:
		return "is there" + since
	case last == nil:
		return "has not joined: it is not among those that are present at the beginning"
	}
	return "is gone" + since
}
