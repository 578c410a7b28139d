package event

import (
	"cmp"
	"container/list"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Default limits of a List.
const (
	DefaultMaxEvents = 4096
	DefaultMaxBytes  = 1 << 20
)

const (
	// joinWithin is how long after it happened last an event that recurs is counted
	// instead of listed again.
	joinWithin = 10 * time.Minute
	// maxBurst events of a type within burstWindow are listed; more are counted in one
	// event, so that ten thousand backends that fail at once leave the rest readable.
	maxBurst    = 200
	burstWindow = 10 * time.Second
	// perType is the part of the list, as a divisor, that events of one type may take: one
	// that happens all the time does not displace the others.
	perType = 4
)

// List holds the latest events. The zero value is empty and has the default limits. It is
// not safe for concurrent use.
type List struct {
	// MaxEvents and MaxBytes limit the list.
	MaxEvents, MaxBytes int

	ofType map[Type]*ofType
	byKey  map[key]*list.Element
	byID   map[uint64]*list.Element
	count  int
	bytes  int
	lastID uint64
}

// ofType holds the events of a type.
type ofType struct {
	order list.List // of *Event, by Last
	bytes int
	// since is when the current burst began, burst how many events it has.
	since time.Time
	burst int
}

// key identifies what is joined.
type key struct {
	of                     Type
	object                 Object
	field, from, to, cause string
}

func keyOf(e *Event) key {
	return key{e.Type, e.Object, e.Field, e.From, e.To, withoutDigits(e.Cause)}
}

// withoutDigits makes causes equal that differ in numbers only: "silent for 903ms".
func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// Len returns the number of events.
func (l *List) Len() int { return l.count }

// Bytes returns the approximate size.
func (l *List) Bytes() int { return l.bytes }

// Add adds an event, or joins it with an equal one, and returns the result.
func (l *List) Add(e Event) Event {
	e = l.summarize(e.complete())
	if at := l.byKey[keyOf(&e)]; at != nil {
		if was := at.Value.(*Event); e.Last.Sub(was.Last) <= joinWithin {
			return l.join(at, e)
		}
	}
	l.lastID++
	e.ID = l.lastID
	l.insert(e)
	return e
}

// summarize replaces an event by one that counts, if there are too many of its type.
func (l *List) summarize(e Event) Event {
	t := l.get(e.Type)
	if age := e.Last.Sub(t.since); age > burstWindow || age < 0 {
		t.since, t.burst = e.Last, 0
	}
	if l.byKey[keyOf(&e)] != nil {
		return e // recurs, and is counted there
	}
	if t.burst++; t.burst <= maxBurst {
		return e
	}
	return Event{
		Type: e.Type, Severity: e.Severity, Time: e.Time, Last: e.Last, Count: e.Count, Object: Object{Kind: e.Object.Kind},
		Cause: fmt.Sprintf("more than %d within %s: the others are only counted", maxBurst, burstWindow),
	}
}

func (l *List) get(of Type) *ofType {
	if l.ofType == nil {
		l.ofType, l.byKey, l.byID = map[Type]*ofType{}, map[key]*list.Element{}, map[uint64]*list.Element{}
	}
	t := l.ofType[of]
	if t == nil {
		t = &ofType{}
		l.ofType[of] = t
	}
	return t
}

// join counts a repeat, which becomes the last event.
func (l *List) join(at *list.Element, e Event) Event {
	now := *at.Value.(*Event)
	now.Count += e.Count
	now.Cause, now.Last, now.Severity = e.Cause, e.Last, e.Severity
	if len(e.Services) > 0 {
		now.Services = e.Services
	}
	l.remove(at)
	l.insert(now)
	return now
}

// insert adds an event as the last one, and removes the oldest ones beyond the limits.
func (l *List) insert(e Event) {
	t := l.get(e.Type)
	at := t.order.PushBack(&e)
	l.byKey[keyOf(&e)], l.byID[e.ID] = at, at
	l.count++
	l.bytes += e.size()
	t.bytes += e.size()
	count, bytes := cmp.Or(l.MaxEvents, DefaultMaxEvents), cmp.Or(l.MaxBytes, DefaultMaxBytes)
	for t.order.Len() > 1 && (t.order.Len() > count/perType || t.bytes > bytes/perType) {
		l.remove(t.order.Front())
	}
	for l.count > 1 && (l.count > count || l.bytes > bytes) {
		l.remove(l.oldest())
	}
}

func (l *List) oldest() (at *list.Element) {
	for _, t := range l.ofType {
		front := t.order.Front()
		if front != nil && (at == nil || compare(*front.Value.(*Event), *at.Value.(*Event)) < 0) {
			at = front
		}
	}
	return at
}

func (l *List) remove(at *list.Element) {
	e := at.Value.(*Event)
	t := l.ofType[e.Type]
	t.order.Remove(at)
	l.count--
	l.bytes -= e.size()
	t.bytes -= e.size()
	delete(l.byID, e.ID)
	if k := keyOf(e); l.byKey[k] == at {
		delete(l.byKey, k)
	}
}

// Restore adds an event that was stored, or a later version of it.
func (l *List) Restore(e Event) {
	e = e.complete()
	l.get(e.Type)
	if at := l.byID[e.ID]; at != nil {
		l.remove(at)
	}
	l.lastID = max(l.lastID, e.ID)
	l.insert(e)
}

// Complete sets the Services of an event that names none. services may be nil.
func (l *List) Complete(id uint64, services func(Event) []string) {
	at := l.byID[id]
	if at == nil || services == nil {
		return
	}
	e := at.Value.(*Event)
	if len(e.Services) > 0 {
		return
	}
	with := *e
	with.Services = services(with)
	with = with.complete()
	l.bytes += with.size() - e.size()
	l.ofType[e.Type].bytes += with.size() - e.size()
	*e = with
}

// Some returns copies of the events with these IDs, oldest first.
func (l *List) Some(ids map[uint64]bool) (some []Event) {
	for id := range ids {
		if at := l.byID[id]; at != nil {
			some = append(some, *at.Value.(*Event))
		}
	}
	slices.SortFunc(some, compare)
	return some
}

// All returns copies of the selected events, oldest first.
func (l *List) All(q Query) (all []Event) {
	for _, t := range l.ofType {
		for at := t.order.Front(); at != nil; at = at.Next() {
			if e := at.Value.(*Event); q.Selects(*e) {
				all = append(all, *e)
			}
		}
	}
	slices.SortFunc(all, compare)
	if q.Limit > 0 {
		all = all[max(0, len(all)-q.Limit):]
	}
	return all
}

func compare(a, b Event) int { return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.ID, b.ID)) }
