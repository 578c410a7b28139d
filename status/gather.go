package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/control"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/plan"
	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
)

// Agent is where the Status of an agent is gathered from. DataPlane, Announcer
// and Probed are nil where the agent has none.
type Agent struct {
	Version, Kernel, Node, Role string

	Started   time.Time
	View      func() *control.View
	DataPlane dataplane.DataPlane
	Announcer announce.Announcer
	// Probed tells since when a target is in its state, and the last error of
	// a probe of it; zero values for what is not known.
	Probed func(health.Target) (since time.Time, lastError string)
}

// Gather gives the Status at a moment.
func (a Agent) Gather(now time.Time) Status {
	g := gatherer{Agent: a, view: a.View()}
	s := Status{
		Version: a.Version, Kernel: a.Kernel, Node: a.Node, Role: a.Role, Started: a.Started, Time: now,
		Problems: slices.Clone(g.view.Problems),
	}
	if a.DataPlane != nil {
		d := a.DataPlane.Describe()
		s.DataPlane = &d
		if err := g.count(); err != nil {
			s.Problems = append(s.Problems, source.Problem{Object: "data plane", Message: "reading its counters: " + err.Error()})
		}
	}
	if a.Announcer != nil {
		s.Peers = a.Announcer.Peers()
	}
	s.Services = g.services()
	s.Routes = g.routes()
	s.Problems = append(s.Problems, g.failures()...)
	return s.complete()
}

type gatherer struct {
	Agent
	view   *control.View
	counts map[service.Key]dataplane.FrontendCounters
}

func (g *gatherer) count() error {
	all, err := g.DataPlane.Counters()
	g.counts = make(map[service.Key]dataplane.FrontendCounters, len(all))
	for _, c := range all {
		g.counts[c.Key] = c
	}
	return err
}

func (g *gatherer) services() []Service {
	byID := map[service.ID]*Service{}
	for i := range g.view.Plan.Frontends {
		f := &g.view.Plan.Frontends[i]
		s := byID[f.Service.ID]
		if s == nil {
			s = &Service{
				ID: f.Service.ID.String(), Method: f.Service.Method, Scheduler: f.Service.Scheduler,
				RingSize: f.Service.RingSize, Check: f.Service.Health.Kind, Origin: f.Service.Origin,
			}
			byID[f.Service.ID] = s
		}
		s.Frontends = append(s.Frontends, g.frontend(f))
	}
	ids := slices.SortedFunc(maps.Keys(byID), service.ID.Compare)
	services := make([]Service, len(ids))
	for i, id := range ids {
		services[i] = *byID[id]
	}
	return services
}

func (g *gatherer) frontend(f *plan.Frontend) Frontend {
	state, reason := g.state(f)
	out := Frontend{
		VIP: f.Key.VIP, Port: f.Key.Port, Protocol: f.Key.Protocol.String(), PortName: f.PortName,
		State: state, Reason: reason,
	}
	var counts dataplane.FrontendCounters
	if f.State != plan.Conflict { // the counters of the Key are its owner's
		counts = g.counts[f.Key]
	}
	out.Counts = counts.Total
	for _, b := range f.Backends {
		shown := g.backend(b)
		shown.InService = f.State != plan.Conflict && holds(g.view.Held[f.Key], b)
		shown.Counts = counts.Backends[b.Addr.String()]
		out.Backends = append(out.Backends, shown)
	}
	return out
}

// holds says whether a frontend is held with a backend.
func holds(held dataplane.Frontend, b plan.Backend) bool {
	return slices.ContainsFunc(held.Backends, func(h service.Backend) bool { return h.Addr == b.Addr })
}

// state is the plan's, or what became of the plan's wish.
func (g *gatherer) state(f *plan.Frontend) (plan.State, string) {
	if f.Want == nil || g.DataPlane == nil {
		return f.State, f.Reason
	}
	if why, refused := g.view.Refused[f.Key]; refused {
		return Refused, why
	}
	if _, held := g.view.Held[f.Key]; held {
		return f.State, f.Reason
	}
	err := cmp.Or(g.view.Failures[f.Key.String()], g.view.Failures["data plane"])
	if err != nil {
		return Pending, err.Error()
	}
	return Pending, "the data plane does not hold it yet"
}

func (g *gatherer) backend(b plan.Backend) Backend {
	out := Backend{
		Address: b.Addr, Name: b.Name, Node: b.Node, Weight: b.Weight, Draining: b.Draining(), Health: b.Health.String(),
	}
	if b.Target.Check.Kind == service.CheckNone {
		out.Health = "unchecked"
	} else if g.Probed != nil {
		out.Since, out.LastError = g.Probed(b.Target)
	}
	return out
}

func (g *gatherer) routes() []Route {
	var routes []Route
	for _, r := range g.view.Plan.Routes {
		shown := Route{Prefix: r.Prefix, NextHop: r.NextHop, Announced: slices.Contains(g.view.Announced, r.Route)}
		if !shown.Announced {
			shown.Reason = g.unannounced(r)
		}
		routes = append(routes, shown)
	}
	for _, r := range g.view.Plan.Refusals {
		routes = append(routes, Route{Prefix: r.Prefix, Reason: r.Reason})
	}
	slices.SortStableFunc(routes, func(a, b Route) int {
		return announce.Route{Prefix: a.Prefix, NextHop: a.NextHop}.Compare(announce.Route{Prefix: b.Prefix, NextHop: b.NextHop})
	})
	return routes
}

// unannounced says why a route of the plan is not announced.
func (g *gatherer) unannounced(r plan.Route) string {
	if g.Announcer == nil {
		return "this agent announces nothing: name BGP peers in its configuration"
	}
	if err := g.view.Failures["announcer"]; err != nil {
		return err.Error()
	}
	for _, k := range r.Frontends {
		if why, refused := g.view.Refused[k]; refused {
			return fmt.Sprintf("%s is refused: %s", k, why)
		}
		if _, held := g.view.Held[k]; !held {
			return fmt.Sprintf("%s is not held by the data plane yet", k)
		}
	}
	return "the agent is about to announce it, or is leaving"
}

// failures tells what is being tried again, in a steady order.
func (g *gatherer) failures() []source.Problem {
	var problems []source.Problem
	for _, what := range slices.Sorted(maps.Keys(g.view.Failures)) {
		problems = append(problems, source.Problem{Object: what, Message: g.view.Failures[what].Error() + " (it is tried again)"})
	}
	return problems
}
