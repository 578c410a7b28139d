// Package event defines what an agent records in its journal: an Event says when something
// changed, from what to what, and why. A List holds the latest events, bounded in count and
// bytes; repeats are joined. It is pure: package agent/journal stores events, and those who
// decide a change create them.
package event

import (
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/shorten"
)

// Severity is that of Kubernetes Events.
type Severity string

// Severities.
const (
	Normal  Severity = "Normal"
	Warning Severity = "Warning"
)

// Object is what an event is about.
type Object struct {
	// Kind is "Service", "Backend", "Route", "BGPPeer", "Node" and so on.
	Kind string `json:"kind"`
	// Namespace is that of a Kubernetes object.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// String returns "Service default/web".
func (o Object) String() string {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + o.Name
	}
	return strings.TrimSpace(o.Kind + " " + name)
}

// ParseObject is the inverse of String. A text of another form is a name.
func ParseObject(text string) Object {
	kind, name, ok := strings.Cut(text, " ")
	if !ok || kind == "" || strings.ContainsAny(name, " ") || strings.ToUpper(kind[:1]) != kind[:1] {
		return Object{Name: text}
	}
	if namespace, rest, ok := strings.Cut(name, "/"); ok && namespace != "" && kind != "Route" {
		return Object{kind, namespace, rest}
	}
	return Object{Kind: kind, Name: name}
}

// Event is a change, or several equal ones.
type Event struct {
	// ID increases with each event of a journal. An event that recurs keeps it.
	ID uint64 `json:"id"`
	// Time is when it happened first, Last when it happened last.
	Time time.Time `json:"time"`
	Last time.Time `json:"last"`
	// Count is how often it happened.
	Count    int      `json:"count"`
	Type     Type     `json:"type"`
	Severity Severity `json:"severity"`
	Object   Object   `json:"object"`
	// Field is the part of the object, if it is not all of it.
	Field string `json:"field,omitempty"`
	// From and To are the states before and after, if there are such.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Cause explains the latest change.
	Cause string `json:"cause,omitempty"`
	// Services are those that the object belongs to, as "namespace/name".
	Services []string `json:"services,omitempty"`
}

// Recorder records events; nil records nothing. It does not block.
type Recorder func(Event)

// Record records an event.
func (r Recorder) Record(e Event) {
	if r != nil {
		r(e)
	}
}

// Limits of an event.
const (
	maxText     = 512
	maxServices = 8
)

// complete returns e with defaults, within the limits.
func (e Event) complete() Event {
	if e.Last.IsZero() {
		e.Last = e.Time
	}
	e.Count = max(e.Count, 1)
	if e.Severity == "" {
		e.Severity = e.Type.severity()
	}
	for _, text := range []*string{&e.Object.Kind, &e.Object.Namespace, &e.Object.Name, &e.Field, &e.From, &e.To, &e.Cause} {
		*text = Shorten(*text)
	}
	if len(e.Services) > maxServices {
		e.Services = slices.Clone(e.Services[:maxServices])
	}
	return e
}

// Change returns "up -> down", or what of it is known.
func (e *Event) Change() string {
	if e.From == "" || e.To == "" {
		return e.From + e.To
	}
	return e.From + " -> " + e.To
}

// Shorten returns a text as an event stores it.
func Shorten(text string) string {
	return strings.Clone(shorten.Text(strings.ToValidUTF8(text, "\uFFFD"), maxText))
}

// size is approximately what e takes in memory and as JSON.
func (e *Event) size() int {
	n := 200 + len(e.Type) + len(e.Object.Kind) + len(e.Object.Namespace) + len(e.Object.Name) + len(e.Field) + len(e.From) + len(e.To) + len(e.Cause)
	for _, s := range e.Services {
		n += len(s) + 3
	}
	return n
}

// Query selects events.
type Query struct {
	// Since is the time before which events are not selected.
	Since time.Time
	// Service is "namespace/name" or "name"; empty selects all.
	Service string
	// Types are those to select; none selects all.
	Types []Type
	// Limit selects the latest of them; 0 selects all.
	Limit int
}

// Selects reports whether an event is selected.
func (q Query) Selects(e Event) bool {
	return !e.Last.Before(q.Since) && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) && (q.Service == "" || e.concerns(q.Service))
}

// concerns reports whether an event is about a Service or something that belongs to it.
func (e *Event) concerns(service string) bool {
	is := func(id string) bool { return id == service || strings.HasSuffix(id, "/"+service) }
	return e.Object.Kind == "Service" && is(e.Object.Namespace+"/"+e.Object.Name) || slices.ContainsFunc(e.Services, is)
}
