package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/histogram"
	"github.com/fairlead/fairlead/internal/keyed"
)

// View is the state of the loop.
type View struct {
	// Loaded means that the source has reported everything, Synced that everything is
	// written except what the plane rejects.
	Loaded, Synced bool
	// Services, Slices and Frontends count what is known now, Unwritten the frontends
	// that are not yet as desired; after a failed write, it may count all of them.
	// Refused counts those that the plane rejects; each of them is also in Problems.
	Services, Slices, Frontends, Unwritten, Refused int
	// Problems lists what is not served and why, sorted by Service.
	Problems []proxy.Problem
	// LastError is why something could not be written; nil after success.
	LastError error
	// Changes counts the changes from the source, Passes the calls to the plane, Failures
	// the failed ones, Set and Removed the frontends and keys passed to it.
	Changes, Passes, Failures, Set, Removed uint64
	// LastSync is when everything was last written, which took LastSyncTook.
	LastSync     time.Time
	LastSyncTook time.Duration
	// Latency is how long recent changes took from the source's call until they were
	// written.
	Latency Latency
	// Delays counts the same for all changes since the start.
	Delays histogram.Histogram
}

// Latency summarizes durations.
type Latency struct{ P50, P99, Max time.Duration }

// Recent is the number of changes that Latency covers.
const Recent = 1024

type stats struct {
	changes, passes, failures, set, removed uint64
	lastError                               error
	lastSync                                time.Time
	lastSyncTook                            time.Duration
	// waiting lists the times of changes that are decided on but not written, late those
	// of them that failed.
	waiting, late []time.Time
	// recent is a ring buffer; next is the next index to overwrite.
	recent []time.Duration
	next   int
	delays histogram.Histogram
}

// pass counts a pass. clean means that nothing that failed is left.
func (s *stats) pass(w *work, now time.Time, took time.Duration, err error, clean bool) {
	if !w.idle() {
		s.passes++
	}
	if err != nil {
		s.failures++
		s.lastError = err
		s.late, s.waiting = append(s.late, s.waiting...), nil
		return
	}
	s.set += uint64(len(w.set))
	s.removed += uint64(len(w.gone))
	if clean {
		s.lastError, s.lastSync, s.lastSyncTook = nil, now, took
		s.waiting, s.late = append(s.late, s.waiting...), nil
	}
	for _, since := range s.waiting {
		s.took(now.Sub(since))
	}
	s.waiting = s.waiting[:0]
}

func (s *stats) took(d time.Duration) {
	s.delays.Observe(d)
	if len(s.recent) < Recent {
		s.recent = append(s.recent, d)
		return
	}
	s.recent[s.next] = d
	s.next = (s.next + 1) % Recent
}

func (s *stats) latency() Latency {
	if len(s.recent) == 0 {
		return Latency{}
	}
	sorted := slices.Sorted(slices.Values(s.recent))
	at := func(percent int) time.Duration { return sorted[(len(sorted)-1)*percent/100] }
	return Latency{at(50), at(99), at(100)}
}

// View returns the current View.
func (l *Loop) View() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := View{
		Loaded: l.loaded, Synced: l.loaded && l.waitsSince().IsZero(),
		Services: l.services, Slices: len(l.slices), Frontends: len(l.owners), Refused: l.keys.Count(keyed.Rejected),
		Unwritten: l.keys.Pending() + l.keys.Count(keyed.Failing),
		Problems:  l.allProblems(), LastError: l.stats.lastError,
		Changes: l.stats.changes, Passes: l.stats.passes, Failures: l.stats.failures, Set: l.stats.set, Removed: l.stats.removed,
		LastSync: l.stats.lastSync, LastSyncTook: l.stats.lastSyncTook, Latency: l.stats.latency(), Delays: l.stats.delays.Clone(),
	}
	if !l.keys.IsKnown() {
		v.Unwritten = len(l.owners)
	}
	return v
}

// Sync returns when everything was last written, and the time since which something is
// pending; zero if never or nothing. healthport.Healthz uses it.
func (l *Loop) Sync() (last, waits time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats.lastSync, l.waitsSince()
}

// waitsSince returns the time since which something is pending; zero: nothing is.
func (l *Loop) waitsSince() time.Time {
	switch {
	case !l.loaded:
		return time.Time{}
	case l.waits.IsZero():
		return l.first
	}
	return l.waits
}

// allProblems returns the problems of the entries, one for each frontend that the plane
// rejects, and a conflict for each rival.
func (l *Loop) allProblems() []proxy.Problem {
	var all []proxy.Problem
	for _, some := range l.problems {
		all = append(all, some...)
	}
	for k, s := range l.keys.All() {
		if e := l.owners[k]; e != nil && s.Phase == keyed.Rejected {
			all = append(all, l.refusal(k, e, s.Err))
		}
	}
	for k, rivals := range l.rivals {
		for _, e := range rivals {
			all = append(all, l.conflict(k, e))
		}
	}
	slices.SortStableFunc(all, func(a, b proxy.Problem) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.String(), b.String()))
	})
	return all
}

// fields maps kinds to the field of a Service that contains the address.
var fields = map[proxy.Kind]string{
	proxy.ClusterIP: "spec.clusterIPs", proxy.ExternalIP: "spec.externalIPs",
	proxy.LoadBalancerIP: "status.loadBalancer", proxy.NodePort: "spec.ports",
}

func (l *Loop) conflict(k proxy.Key, e *entry) proxy.Problem {
	owner, kind := l.owners[k], e.frontend(k).Kind
	why := "and is older"
	if owner.frontend(k).Kind.Beats(kind) {
		why = "as its cluster IP"
	}
	return proxy.OfService(e.id, fields[kind], "Service %s already has %s %s: give one of the two another address or port",
		owner.id, k, why)
}

func (l *Loop) refusal(k proxy.Key, e *entry, err error) proxy.Problem {
	return proxy.OfService(e.id, fields[e.frontend(k).Kind], "%s cannot be held as it should be: %s; what was held there stays, and it is tried again", k, errors.Unwrap(err))
}

// ServiceView is the state of one Service.
type ServiceView struct {
	ID service.ID
	// Frontends lists the frontends that the Service has, without those that another
	// Service has. They are shared and must not be modified.
	Frontends []proxy.Frontend
	Problems  []proxy.Problem
}

// Service returns one Service, or an error if it is not known.
func (l *Loop) Service(id service.ID) (ServiceView, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	if e == nil || e.service == nil {
		return ServiceView{}, fmt.Errorf("Service %s is not known", id)
	}
	return l.viewOf(e), nil
}

// Services returns all Services, sorted by ID.
func (l *Loop) Services() []ServiceView {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]ServiceView, 0, l.services)
	for _, e := range l.entries {
		if e.service != nil {
			list = append(list, l.viewOf(e))
		}
	}
	slices.SortFunc(list, func(a, b ServiceView) int { return a.ID.Compare(b.ID) })
	return list
}

func (l *Loop) viewOf(e *entry) ServiceView {
	v := ServiceView{ID: e.id, Frontends: e.frontends, Problems: l.problems[e]}
	for i := range e.frontends {
		k := e.frontends[i].Key
		if l.owners[k] != e {
			v.Problems = append(slices.Clip(v.Problems), l.conflict(k, e))
		} else if s := l.keys.State(k); s.Phase == keyed.Rejected {
			v.Problems = append(slices.Clip(v.Problems), l.refusal(k, e, s.Err))
		}
	}
	if len(v.Problems) > len(l.problems[e]) {
		v.Frontends = slices.DeleteFunc(slices.Clone(e.frontends), func(f proxy.Frontend) bool { return l.owners[f.Key] != e })
	}
	return v
}
