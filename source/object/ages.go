package object

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/core/service"
)

// Times is what an EndpointSlice says of who serves, and since when. It is
// never changed.
type Times struct {
	created time.Time
	// unchanged says that the endpoints are those that it was made with: the
	// API server counts its generations, but not changes of its metadata
	// (kubernetes pkg/registry/discovery/endpointslice/strategy.go).
	unchanged bool
	serving   []servingSince
	// gone is what the annotation says of who does not serve in this slice.
	gone map[netip.Addr]span
	// stale says that there is such, or that the annotation cannot be read.
	stale bool
}

// servingSince is one that serves, and what the annotation says of it.
type servingSince struct {
	addr  netip.Addr
	ready bool // else it is on its way out
	said  span
}

// ReadTimes reads an EndpointSlice. Endpoints that make no sense are left out.
func ReadTimes(s *discoveryv1.EndpointSlice) *Times {
	in, _ := readSlice(s, Origin{})
	t := &Times{created: s.CreationTimestamp.UTC(), unchanged: s.Generation == 1}
	t.gone = maps.Clone(in.since)
	for _, e := range in.endpoints {
		if e.use == unused || e.addr.Is6() != in.ipv6 || service.CheckUnicast(e.addr) != nil {
			continue
		}
		t.serving = append(t.serving, servingSince{e.addr, e.use == ready, in.since[e.addr]})
		delete(t.gone, e.addr)
	}
	_, annotated := s.Annotations[AnnotationBackendTimestamps]
	t.stale = len(t.gone) > 0 || annotated && in.since == nil
	return t
}

// old is what an endpoint's times are by the slice alone, as balancers read it.
func (t *Times) old(e servingSince) span {
	if e.said.since.IsZero() {
		return span{since: t.created}
	}
	return e.said
}

// Ages is since when each server of a Service takes flows, and since when it
// drains, as seen by one who follows all its EndpointSlices. nil is for who has
// not looked yet. It is never changed.
type Ages map[netip.Addr]age

type age struct {
	span
	ready bool
}

// Next gives the ages when the EndpointSlices of the Service are these. What is
// known stays, whichever slice an endpoint is in; who is new, is back or begins
// to drain does so now. Times of the API server's clock and of leaders' before
// may be ahead of now: who is new is younger than all the others nevertheless.
func (a Ages) Next(all []*Times, now time.Time) Ages {
	if a == nil {
		a = found(all)
	}
	newest := a.newest()
	now = now.UTC().Truncate(time.Millisecond)
	if !now.After(newest) {
		now = newest.Add(time.Millisecond)
	}
	next := Ages{}
	ready := map[bool]bool{} // of a family, IPv6 or not, somebody is
	for _, t := range all {
		for _, e := range t.serving {
			ready[e.addr.Is6()] = ready[e.addr.Is6()] || e.ready
			if was, twice := next[e.addr]; twice && (was.ready || !e.ready) {
				continue
			}
			next[e.addr] = age{a.begun(t, e, newest, now), e.ready}
		}
	}
	for addr, g := range next {
		g.span = g.drain(ready[addr.Is6()], now)
		next[addr] = g
	}
	return next
}

// found gives the ages that slices tell by themselves. What one says of an
// endpoint counts where the endpoint has moved to another, too.
func found(all []*Times) Ages {
	a := Ages{}
	for _, t := range all {
		for addr, s := range t.gone {
			a[addr] = age{s, true}
		}
	}
	for _, t := range all {
		for _, e := range t.serving {
			if _, said := a[e.addr]; !said || !e.said.since.IsZero() {
				a[e.addr] = age{t.old(e), true}
			}
		}
	}
	return a
}

// newest is the last time known.
func (a Ages) newest() (last time.Time) {
	for _, g := range a {
		for _, t := range [...]time.Time{g.since, g.drained} {
			if t.After(last) {
				last = t
			}
		}
	}
	return last
}

// begun says when an endpoint began to take flows, and, where that is known
// from before, since when it drains.
func (a Ages) begun(t *Times, e servingSince, newest, now time.Time) span {
	was, known := a[e.addr]
	switch {
	case known && e.ready && !was.ready && !was.drained.IsZero():
		return span{since: now} // it is back
	case known:
		return was.span
	case t.unchanged && (!e.said.since.IsZero() || !t.created.Before(newest)):
		return t.old(e)
	}
	return span{since: now}
}

// drain says since when one drains that is on its way out: while others are
// ready. Where none is, it takes flows as ever.
func (g age) drain(othersReady bool, now time.Time) span {
	s := g.span
	switch {
	case g.ready: // what may be said of it is that it has weight 0
	case !othersReady:
		s.drained = time.Time{}
	case s.drained.IsZero():
		s.drained = now
		if !now.After(s.since) {
			s.drained = s.since.Add(time.Millisecond)
		}
	}
	return s
}

// Annotation gives what AnnotationBackendTimestamps must say on a slice of these, "" for no
// annotation: of those whose times are not the slice's own. It says no where
// what it says already means the same.
func (a Ages) Annotation(t *Times) (text string, change bool) {
	change = t.stale
	words := map[string]bool{}
	for _, e := range t.serving {
		is := a[e.addr].span
		change = change || !is.equal(t.old(e))
		if !is.equal(span{since: t.created}) {
			words[e.addr.String()+"="+is.String()] = true
		}
	}
	if !change {
		return "", false
	}
	return strings.Join(slices.Sorted(maps.Keys(words)), ","), true
}

func (s span) equal(o span) bool { return s.since.Equal(o.since) && s.drained.Equal(o.drained) }

// String gives what parseSince reads.
func (s span) String() string {
	text := s.since.Format(time.RFC3339Nano)
	if !s.drained.IsZero() {
		text += "/" + s.drained.Format(time.RFC3339Nano)
	}
	return text
}
