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

// Times has the endpoints of an EndpointSlice that serve, and when they began to. It is
// immutable.
type Times struct {
	created time.Time
	// unchanged means that the endpoints are those of its creation: the API server counts
	// generations, but not changes of the metadata (kubernetes
	// pkg/registry/discovery/endpointslice/strategy.go).
	unchanged bool
	serving   []servingSince
	// gone is what the annotation says about addresses that do not serve in this slice.
	gone map[netip.Addr]span
	// stale means that there are such addresses, or that the annotation is invalid.
	stale bool
}

// servingSince is an endpoint that serves, with its entry in the annotation.
type servingSince struct {
	addr  netip.Addr
	ready bool // otherwise it is terminating
	said  span
}

// ReadTimes reads an EndpointSlice. Invalid endpoints are left out.
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

// old returns an endpoint's times from the slice only, as balancers read them.
func (t *Times) old(e servingSince) span {
	if e.said.since.IsZero() {
		return span{since: t.created}
	}
	return e.said
}

// Ages has when each backend of a Service began to take flows and to drain, as
// seen by an observer of all its EndpointSlices. nil means not observed yet. It is
// immutable.
type Ages map[netip.Addr]age

type age struct {
	span
	ready bool
}

// Next returns the ages for these EndpointSlices of the Service. Known times stay,
// whichever slice an endpoint is in; a backend that is new, returns or begins to drain does
// so now. Times from the API server's clock and from previous leaders may be ahead of now,
// but a new backend is always younger than all others.
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
	ready := map[bool]bool{} // whether any backend of the family, keyed by IPv6, is ready
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

// found returns the ages in the slices themselves. An entry of one slice also counts for an
// endpoint that has moved to another.
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

// newest returns the latest known time.
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

// begun returns when an endpoint began to take flows and, if known from before, when
// it began to drain.
func (a Ages) begun(t *Times, e servingSince, newest, now time.Time) span {
	was, known := a[e.addr]
	switch {
	case known && e.ready && !was.ready && !was.drained.IsZero():
		return span{since: now} // it has returned
	case known:
		return was.span
	case t.unchanged && (!e.said.since.IsZero() || !t.created.Before(newest)):
		return t.old(e)
	}
	return span{since: now}
}

// drain returns the time since which a terminating backend drains: while others are ready. If none
// is, it takes flows as before.
func (g age) drain(othersReady bool, now time.Time) span {
	s := g.span
	switch {
	case g.ready: // it can only drain because of weight 0
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

// Annotation returns the required value of AnnotationBackendTimestamps for a slice, "" for
// no annotation: the backends whose times are not the slice's own. change is false if the
// current value is equivalent.
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

// String formats the times for parseSince.
func (s span) String() string {
	text := s.since.Format(time.RFC3339Nano)
	if !s.drained.IsZero() {
		text += "/" + s.drained.Format(time.RFC3339Nano)
	}
	return text
}
