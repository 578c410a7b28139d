package reconciler

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

// failing is a call that failed and is retried.
type failing struct {
	object event.Object
	field  string
	cause  string
}

// recordFailures records which calls began to fail, or fail in another way, and which do not
// fail any more.
func (l *Loop) recordFailures(failures map[string]error) {
	if l.Events == nil || len(failures)+len(l.failing) == 0 {
		return
	}
	frontends := map[string]service.Key{}
	for k := range l.keys.All() {
		frontends[k.String()] = k
	}
	now := make(map[string]failing, len(failures))
	for _, what := range slices.Sorted(maps.Keys(failures)) {
		f := failing{event.Object{Kind: "Node", Name: l.Node.Name}, what, failures[what].Error()}
		if k, ok := frontends[what]; ok {
			f.object = l.serviceObject(k)
		} else if prefix, ok := strings.CutPrefix(what, "route "); ok {
			f.object, f.field = event.Object{Kind: "Route", Name: prefix}, ""
		}
		if now[what] = f; l.failing[what].cause != f.cause {
			l.Events.Record(event.Event{Type: event.ReconcileFailed, Object: f.object, Field: f.field, Cause: f.cause})
		}
	}
	for _, what := range slices.Sorted(maps.Keys(l.failing)) {
		if f := l.failing[what]; now[what] == (failing{}) {
			l.Events.Record(event.Event{Type: event.ReconcileRecovered, Object: f.object, Field: f.field, Cause: "was: " + f.cause})
		}
	}
	l.failing = now
}

// recordStates records which frontends changed their state from one plan to the next.
func (l *Loop) recordStates(before, now *plan.Plan) {
	if l.Events == nil || before == now {
		return
	}
	was := before.Frontends
	for i := range now.Frontends {
		f := &now.Frontends[i]
		for len(was) > 0 && was[0].Key.Compare(f.Key) < 0 {
			was = was[1:]
		}
		if len(was) == 0 {
			return
		}
		if was[0].Key != f.Key || was[0].Service.ID != f.Service.ID {
			continue
		}
		if was[0].State != f.State {
			l.recordState(was[0].State, f)
		}
		was = was[1:]
	}
}

func (l *Loop) recordState(was plan.State, f *plan.Frontend) {
	severity := event.Warning
	switch f.State {
	case plan.Active:
		if severity = event.Normal; was == plan.AwaitingHealth {
			return
		}
	case plan.Draining, plan.DedicatedElsewhere:
		severity = event.Normal
	}
	l.Events.Record(event.Event{
		Type: event.FrontendStateChanged, Severity: severity, Object: objectOf(f.Service.ID), Field: f.Key.String(),
		From: string(was), To: string(f.State), Cause: f.Reason,
	})
}

// recordQuarantines records which backends operators drain, and no longer drain, from one
// plan to the next. An order that applied at the start was recorded before.
func (l *Loop) recordQuarantines(before, now *plan.Plan) {
	if l.Events == nil || before == now || !l.view.Load().Loaded {
		return
	}
	was, is := before.Quarantines, now.Quarantines
	record := func(of event.Type, in, notIn map[service.Quarantine][]string, cause string) {
		others := map[service.Quarantine]bool{}
		for q := range notIn {
			others[order(q)] = true
		}
		for _, q := range slices.SortedFunc(maps.Keys(in), func(a, b service.Quarantine) int { return strings.Compare(a.Name, b.Name) }) {
			if !others[order(q)] {
				object := event.Object{Kind: "Backend", Name: q.Addr.String()}
				l.Events.Record(event.Event{Type: of, Object: object, Field: q.Where(), Cause: cause + q.Why(), Services: in[q]})
			}
		}
	}
	record(event.BackendUndrained, was, is, "was ")
	record(event.BackendDrained, is, was, "")
}

// order returns what an order drains, without the reason, which may be edited.
func order(q service.Quarantine) service.Quarantine {
	q.Reason, q.By, q.Since = "", "", time.Time{}
	return q
}

// recordRejected records that the data plane does not support a frontend.
func (l *Loop) recordRejected(k service.Key, err error) {
	l.Events.Record(event.Event{Type: event.FrontendRejected, Object: l.serviceObject(k), Field: k.String(), Cause: err.Error()})
}

// recordRoute records a change of what is advertised.
func (l *Loop) recordRoute(of event.Type, was, is route.Route) {
	if l.Events == nil {
		return
	}
	e := event.Event{Type: of, Object: event.Object{Kind: "Route"}, From: words(was), To: words(is)}
	prefix := is.Prefix
	if of == event.RouteWithdrawn {
		prefix = was.Prefix
		e.Cause = l.whyWithdrawn(prefix)
	}
	e.Object.Name = prefix.String()
	for _, k := range l.frontendsOf(prefix) {
		if o := l.serviceObject(k); o.Kind == "Service" && !slices.Contains(e.Services, o.Namespace+"/"+o.Name) {
			e.Services = append(e.Services, o.Namespace+"/"+o.Name)
		}
	}
	l.Events.Record(e)
}

// words returns "via 10.0.0.5 with MED 100".
func words(r route.Route) string {
	if !r.Prefix.IsValid() {
		return ""
	}
	text := "via " + r.NextHop.String()
	if with := r.Attributes.String(); with != "" {
		text += " with " + with
	}
	return text
}

// whyWithdrawn returns why a prefix is not advertised any more.
func (l *Loop) whyWithdrawn(p netip.Prefix) string {
	if l.drain.stage.Leaves() {
		return "the load balancer drains: " + strings.Join(l.drain.why, "; ")
	}
	if l.planned == nil {
		return ""
	}
	refusals := l.planned.Refusals
	at, found := slices.BinarySearchFunc(refusals, p, func(r plan.Refusal, p netip.Prefix) int { return r.Prefix.Compare(p) })
	if found {
		return fmt.Sprintf("%s: %s", refusals[at].Rule, refusals[at].Reason)
	}
	for _, k := range l.frontendsOf(p) {
		f := l.planned.Find(k)
		switch {
		case f == nil:
			return fmt.Sprintf("%s does not exist any more", k)
		case f.State != plan.Active:
			return fmt.Sprintf("%s is %s: %s", k, f.State, f.Reason)
		}
	}
	return "no frontend is programmed"
}

// frontendsOf returns the frontends of a prefix in this plan, or in the former one.
func (l *Loop) frontendsOf(p netip.Prefix) []service.Key {
	for _, in := range []*plan.Plan{l.planned, l.view.Load().Plan} {
		if in == nil {
			continue
		}
		at, found := slices.BinarySearchFunc(in.Routes, p, func(r plan.Route, p netip.Prefix) int {
			return cmp.Or(r.Prefix.Addr().Compare(p.Addr()), cmp.Compare(r.Prefix.Bits(), p.Bits()))
		})
		if found {
			return in.Routes[at].Frontends
		}
	}
	return nil
}

// serviceObject returns the Service of a frontend in this plan, or in the former one.
func (l *Loop) serviceObject(k service.Key) event.Object {
	if id, ok := l.serviceOf(k); ok {
		return objectOf(id)
	}
	return event.Object{Kind: "Frontend", Name: k.String()}
}

// serviceOf returns the Service of a frontend in this plan or the one before.
func (l *Loop) serviceOf(k service.Key) (id service.ID, ok bool) {
	for _, in := range []*plan.Plan{l.planned, l.view.Load().Plan} {
		if in == nil {
			continue
		}
		if f := in.Find(k); f != nil {
			return f.Service.ID, true
		}
	}
	return service.ID{}, false
}

func objectOf(id service.ID) event.Object {
	return event.Object{Kind: "Service", Namespace: id.Namespace, Name: id.Name}
}
