package journal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/features"
)

// Seen is what a Watch compares with what it has seen before.
type Seen struct {
	Problems []problem.Problem
	// Loaded means that the Problems are complete: one that is missing was resolved.
	Loaded   bool
	Degraded []features.Degraded
	Tables   []dataplane.Table
}

// A table is filling from fillingAt percent, until it is below relievedAt percent.
const (
	fillingAt  = 80
	relievedAt = 70
)

// Watch turns differences between what it sees into events: rejected configuration,
// failures, degraded features and full tables, all of which last longer than the interval
// at which it is called.
type Watch struct {
	node     event.Object
	problems map[finding]string // its cause
	degraded map[string]string  // by feature: what is lost
	filling  map[string]bool
}

// finding is a part of an object with problems.
type finding struct {
	failure       bool
	object, field string
}

// NewWatch returns a Watch that continues after these events, so that a restart repeats
// nothing, and what ended meanwhile is noticed.
func NewWatch(node string, past []event.Event) *Watch {
	w := &Watch{node: event.Object{Kind: "Node", Name: node}, problems: map[finding]string{}, degraded: map[string]string{}, filling: map[string]bool{}}
	for _, e := range past {
		if e.Object.Name == "" {
			continue // counts several
		}
		f := finding{e.Type == event.ReconcileFailed || e.Type == event.ReconcileRecovered, e.Object.String(), e.Field}
		switch e.Type {
		case event.ConfigRejected:
			w.problems[f] = e.Cause
		case event.ConfigResolved, event.ReconcileRecovered:
			delete(w.problems, f)
		case event.Degraded:
			w.degraded[e.Field] = e.Cause
		case event.FeatureRestored:
			delete(w.degraded, e.Field)
		case event.TableFilling:
			w.filling[e.Field] = true
		case event.TableRelieved:
			delete(w.filling, e.Field)
		}
	}
	return w
}

// Look returns the events since the last call, in a stable order.
func (w *Watch) Look(s Seen) []event.Event {
	return slices.Concat(w.lookProblems(s.Problems, s.Loaded), w.lookDegraded(s.Degraded), w.lookTables(s.Tables))
}

func (w *Watch) lookProblems(all []problem.Problem, loaded bool) (events []event.Event) {
	now := map[finding]string{}
	for _, p := range all {
		f := finding{p.Failure, objectOf(p).String(), p.Field}
		cause := strings.TrimPrefix(problem.Problem{Where: p.Where, Message: p.Message}.String(), ": ")
		if now[f] != "" {
			cause = now[f] + "; " + cause
		}
		now[f] = event.Shorten(cause)
	}
	if !loaded {
		for f, cause := range w.problems {
			now[f] = cmp.Or(now[f], cause)
		}
	}
	types := map[bool][2]event.Type{false: {event.ConfigResolved, event.ConfigRejected}, true: {event.ReconcileRecovered, event.ReconcileFailed}}
	for _, f := range changed(w.problems, now) {
		e := event.Event{Type: types[f.failure][1], Object: event.ParseObject(f.object), Field: f.field, Cause: now[f]}
		if now[f] == "" {
			e.Type, e.Cause = types[f.failure][0], "was: "+w.problems[f]
		}
		events = append(events, e)
	}
	w.problems = now
	return events
}

// objectOf returns the object of a problem: its file, if the input names none.
func objectOf(p problem.Problem) event.Object {
	if p.Object == "" {
		name, _, _ := strings.Cut(p.Where, ":")
		return event.Object{Kind: "File", Name: name}
	}
	return event.ParseObject(p.Object)
}

// changed returns the keys whose values differ, sorted.
func changed[K comparable](was, now map[K]string) (keys []K) {
	for k, v := range now {
		if was[k] != v {
			keys = append(keys, k)
		}
	}
	for k := range was {
		if _, is := now[k]; !is {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b K) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return keys
}

func (w *Watch) lookDegraded(all []features.Degraded) (events []event.Event) {
	now := map[string]string{}
	for _, d := range all {
		now[string(d.Component)+"/"+d.Feature] = event.Shorten(d.String())
	}
	for _, feature := range changed(w.degraded, now) {
		e := event.Event{Type: event.Degraded, Object: w.node, Field: feature, Cause: now[feature]}
		if now[feature] == "" {
			e.Type, e.Cause = event.FeatureRestored, "was: "+w.degraded[feature]
		}
		events = append(events, e)
	}
	w.degraded = now
	return events
}

func (w *Watch) lookTables(all []dataplane.Table) (events []event.Event) {
	for _, t := range all {
		percent := 0
		if t.Size > 0 {
			percent = t.Used * 100 / t.Size
		}
		e := event.Event{Object: w.node, Field: t.Name, Cause: fmt.Sprintf("%d of %d entries are used", t.Used, t.Size)}
		switch was := w.filling[t.Name]; {
		case !was && percent >= fillingAt:
			e.Type, w.filling[t.Name] = event.TableFilling, true
		case was && percent < relievedAt:
			e.Type = event.TableRelieved
			delete(w.filling, t.Name)
		default:
			continue
		}
		events = append(events, e)
	}
	return events
}
