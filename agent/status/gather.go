package status

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/reconciler/probe"
)

// Agent is the source from which the Status of an agent is gathered. DataPlane,
// DSRAgent, Announcer and Probed are nil if the agent has none; Announcer is also nil
// without peers.
type Agent struct {
	Version, Kernel, Node, Role string
	// ManifestDir is the absolute path of the folder of manifests, or empty.
	ManifestDir string

	Started time.Time
	// View is nil if only a service proxy runs. Source then returns the rejected input;
	// in other roles, it returns what prevents the input from being read the first time.
	// It may be nil.
	View      func() *reconciler.View
	Source    func() []problem.Problem
	DataPlane dataplane.DataPlane
	// DSRAgent returns the state of the DSR agent.
	DSRAgent func() (dsr.State, error)
	// ServiceProxy is nil without a service proxy.
	ServiceProxy func() ServiceProxy
	// ProxyProblems returns the problems of the service proxy alone. May be nil.
	ProxyProblems func() []problem.Problem
	Announcer     advertise.Announcer
	// Cloud is nil without a cloud. Its peers do not affect readiness.
	Cloud advertise.Announcer
	// Layer2 is nil if VIPs are not advertised that way.
	Layer2 segment
	// PeersUnknown means that the agent's peers are not known yet.
	PeersUnknown bool
	// ProxySync returns when the service proxy last wrote everything, and the
	// time since which something is pending. May be nil.
	ProxySync func() (last, waits time.Time)
	// NodeKeys returns the keys for packets between nodes, and what is wrong with them.
	// May be nil.
	NodeKeys func() (NodeKeys, error)
	// Lacks names the capabilities that the process lacks. May be nil.
	Lacks error
	// State is where the agent persists its state. May be nil.
	State *statedir.Dir
	// Journal returns why events cannot be stored, or nil. May be nil.
	Journal func() error
	// Degraded lists the optional kernel features that the agent runs without. May be
	// nil.
	Degraded func() []features.Degraded
	// Probed returns the result for a target, or a zero value.
	Probed func(health.Target) probe.Result
	// Placement is DSRAgent without flows and counters, and Paths returns how the kernel
	// sends packets to addresses. Either may be nil; only GatherOnly calls them.
	Placement func() (dsr.State, error)
	Paths     func([]netip.Addr) (map[netip.Addr]dataplane.Path, error)

	// Measure sets Tables and the durations of a Status. May be nil.
	Measure func(*Status)

	detailed, tables bool
}

// GatherOnly returns the Status of what is selected, with details, at a cost that does not
// depend on the rest.
func (a Agent) GatherOnly(now time.Time, only selection.Selection) Status {
	a.tables = only.Tables
	if only.All() {
		return a.Gather(now)
	}
	if a.View != nil {
		view := only.Narrow(a.View())
		a.View = func() *reconciler.View { return view }
	}
	switch {
	case !only.Objects():
		a.DSRAgent = nil // it lists every backend
	case a.Placement != nil:
		a.DSRAgent = a.Placement
	}
	a.detailed = true
	return a.Gather(now)
}

// Gather returns the Status at a given time.
func (a Agent) Gather(now time.Time) Status {
	g := gatherer{Agent: a, view: &reconciler.View{Plan: &plan.Plan{}}}
	if a.View != nil {
		g.view = a.View()
	}
	s := Status{
		Version: a.Version, Kernel: a.Kernel, Node: a.Node, Role: a.Role, Started: a.Started, Time: now, ManifestDir: a.ManifestDir,
		Problems: slices.Clone(g.view.Problems), FailedCalls: g.view.Failed, Stale: g.view.Stale,
	}
	if a.Lacks != nil {
		s.Problems = append(s.Problems, problem.Problem{Object: "process", Message: a.Lacks.Error()})
	}
	if a.NodeKeys != nil {
		keys, err := a.NodeKeys()
		if s.NodeKeys = &keys; err != nil {
			s.Problems = append(s.Problems, problem.Problem{Object: "node keys", Field: "--node-key-file", Message: err.Error()})
		}
	}
	if a.DataPlane != nil {
		d := a.DataPlane.Describe()
		s.DataPlane = &d
		if err := g.read(); err != nil {
			s.Problems = append(s.Problems, problem.Failed("data plane", "reading its counters: "+err.Error()))
		}
	}
	if a.DSRAgent != nil {
		var err error
		if s.DSRAgent, err = g.dsrAgent(); err != nil {
			s.Problems = append(s.Problems, problem.Failed("DSR agent", "reading its state: "+err.Error()))
		}
	}
	if a.Source != nil && !g.view.Loaded {
		s.Problems = append(s.Problems, a.Source()...)
		if a.View != nil {
			s.Problems = append(s.Problems, problem.Failed("Services", "have not been read since this agent started: "+
				"until then, the kernel state stays unchanged and nothing is advertised"))
		}
	}
	if a.ServiceProxy != nil {
		p := a.ServiceProxy()
		s.ServiceProxy = &p
		s.Problems = append(s.Problems, p.Problems...)
	}
	if a.Degraded != nil {
		s.Degraded = a.Degraded()
	}
	if a.Measure != nil {
		a.Measure(&s)
	}
	s.Drain = drainOf(g.view)
	s.Peers = g.allPeers()
	answered, unanswered := a.answered()
	g.answered, s.Problems = answered, append(s.Problems, unanswered...)
	s.Services = g.services()
	s.Routes = g.routes()
	s.Withdrawing, s.Leaving = g.view.Withdrawing, leaving(g.view)
	s.Problems = slices.Concat(s.Problems, g.paths(s.Services), a.stored(), plan.Conflicts(g.view.Plan.Frontends), g.failures())
	s.Problems = append(s.Problems, s.overdue()...)
	return s.complete()
}

// Lasting returns the problems that are known without reading the kernel, except for calls
// that the loop retries, which it records itself. conflicts are the Conflicts of its plan.
func (a Agent) Lasting(now time.Time, conflicts []problem.Problem) []problem.Problem {
	view := &reconciler.View{Plan: &plan.Plan{}}
	if a.View != nil {
		view = a.View()
	}
	problems := slices.Clone(view.Problems)
	if a.Source != nil && !view.Loaded {
		problems = append(problems, a.Source()...)
	}
	if a.ProxyProblems != nil {
		problems = append(problems, a.ProxyProblems()...)
	}
	_, unanswered := a.answered()
	problems = append(problems, unanswered...)
	problems = append(problems, a.stored()...)
	problems = append(problems, conflicts...)
	return append(problems, Status{Time: now, Withdrawing: view.Withdrawing}.overdue()...)
}

type gatherer struct {
	Agent
	view   *reconciler.View
	counts map[service.Key]dataplane.FrontendCounters
	live   map[service.Key]liveFrontend
	dsr    dsrIndex
	// peers are those of the Announcer.
	peers []advertise.Peer
	// answered holds who answers for each prefix on layer 2.
	answered map[netip.Prefix]advertise.Answered
}

// allPeers lists all peers, for BGP, cloud APIs and layer 2, and remembers those of the
// Announcer.
func (g *gatherer) allPeers() []advertise.Peer {
	if g.Announcer != nil {
		g.peers = g.Announcer.Peers()
	}
	all := slices.Clone(g.peers)
	if g.Cloud != nil {
		all = append(all, g.Cloud.Peers()...)
	}
	if g.Layer2 != nil {
		all = append(all, g.Layer2.Peers()...)
	}
	return all
}

func (g *gatherer) services() []Service {
	byID := map[service.ID]*Service{}
	stale := staleServices(g.view.Stale)
	for i := range g.view.Plan.Frontends {
		f := &g.view.Plan.Frontends[i]
		s := byID[f.Service.ID]
		if s == nil {
			s = &Service{
				ID: f.Service.ID.String(), ForwardingMode: f.Service.Method, Scheduler: f.Service.Scheduler,
				MaglevTableSize: f.Service.RingSize, Check: f.Service.Health.Kind, Origin: f.Service.Origin,
				StaleSince: stale[f.Service.ID.String()],
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
	out := Frontend{
		VIP: f.Key.VIP, Port: f.Key.Port, LastPort: f.Key.Last, Protocol: f.Key.Protocol.String(), PortName: f.PortName,
	}
	var counts dataplane.FrontendCounters
	if f.State != plan.Conflict { // the counters of the Key are its owner's
		counts = g.counts[f.Key]
	}
	out.Counts = counts.Total
	if counts.SYN != (dataplane.SYNCounts{}) {
		out.SYNFlood = &counts.SYN
	}
	held := make(map[netip.AddrPort]*service.Backend, len(f.Backends))
	programmed := g.view.Held[f.Key].Backends
	for i := range programmed {
		held[programmed[i].Addr] = &programmed[i]
	}
	for _, b := range f.Backends {
		shown := g.backend(f, b, held[b.Addr], counts.Backends[b.Addr.String()])
		if f.State != plan.Conflict {
			shown.Local = g.local(f, b)
		}
		out.Backends = append(out.Backends, shown)
	}
	out.State, out.Reason = g.state(f, out.Backends)
	if r, ok := g.DataPlane.(dataplane.Reader); ok && g.tables && f.State.Programmed() && f.Service.Scheduler == service.Maglev {
		if p, _ := r.Read(f.Key); p != nil { // what cannot be read is not compared
			out.Table = p.Digest
		}
	}
	if g.detailed {
		g.detail(f, &out)
	}
	return out
}

// state returns the state in the plan, or that of the attempt to program it.
func (g *gatherer) state(f *plan.Frontend, backends []Backend) (plan.State, string) {
	onlyDSR := g.DataPlane == nil
	if f.Want == nil && !(onlyDSR && (f.State == plan.DedicatedElsewhere || f.State == plan.NotAdvertised)) { // load balancing decisions do not concern the DSR agent
		return f.State, f.Reason
	}
	if onlyDSR {
		return g.dsrState(f, backends)
	}
	if why, refused := g.view.Refused[f.Key]; refused {
		return Rejected, about(f.Key.String(), why)
	}
	if _, held := g.view.Held[f.Key]; held {
		return f.State, f.Reason
	}
	err := cmp.Or(g.view.Failures[f.Key.String()], g.view.Failures["data plane"])
	if err != nil {
		return Pending, about(f.Key.String(), err.Error())
	}
	return Pending, "not yet programmed into the data plane"
}

// backend returns a backend of a frontend. held is what the data plane has of it, or nil.
func (g *gatherer) backend(f *plan.Frontend, b plan.Backend, held *service.Backend, counts dataplane.Counts) Backend {
	out := Backend{
		Address: b.Addr, Name: b.Name, Node: b.Node, Weight: b.Weight, Draining: b.Draining(), Health: b.Health.String(), Counts: counts, Quarantine: b.Quarantine,
	}
	wasUp := false
	if b.Target.Check.Kind == service.CheckNone || g.Probed == nil {
		out.Health = "unchecked"
	} else {
		r := g.Probed(b.Target)
		out.Since, out.LastError, wasUp = r.Since, r.Error, r.WasUp
	}
	if held != nil && f.State != plan.Conflict {
		out.InService, out.ProgrammedWeight = true, held.Weight
		// A backend that was never up has nothing to drain.
		out.Draining = held.Draining() && (b.Weight == 0 || wasUp || counts.Flows > 0)
	}
	return out
}

// FrontendState returns the state of one frontend of a view, and its reason. Without a data
// plane, it is that in the plan.
func (a Agent) FrontendState(view *reconciler.View, f *plan.Frontend) (plan.State, string) {
	if a.DataPlane == nil {
		return f.State, f.Reason
	}
	return (&gatherer{Agent: a, view: view}).state(f, nil)
}

// BackendState returns one backend of a frontend of a view, given its counters.
func (a Agent) BackendState(view *reconciler.View, f *plan.Frontend, b plan.Backend, counts dataplane.Counts) Backend {
	g := gatherer{Agent: a, view: view}
	for _, h := range view.Held[f.Key].Backends {
		if h.Addr == b.Addr {
			return g.backend(f, b, &h, counts)
		}
	}
	return g.backend(f, b, nil, counts)
}

func (g *gatherer) routes() []Route {
	if g.DataPlane == nil {
		return nil // does not apply
	}
	var routes []Route
	for _, r := range g.view.Plan.Routes {
		since, announced := g.view.Announced[r.Route]
		announced = announced && g.announces()
		shown := Route{Prefix: r.Prefix, NextHop: r.NextHop, Attributes: r.Attributes, Advertised: announced, Since: since}
		switch {
		case !announced:
			shown.Rule, shown.Reason = g.notAdvertised(r)
		case g.lacks(r.Mode) != "":
			shown.Advertised, shown.Since = false, time.Time{}
			shown.Rule, shown.Reason = RuleModeNotAvailable, fmt.Sprintf("the advertisement requires the mode %s, but this agent %s", r.Mode, g.lacks(r.Mode))
		case g.Announcer != nil && r.Mode.Has(route.ModeBGP) && toNobody(r.Peers, g.peers):
			shown.Advertised, shown.Since = false, time.Time{}
			shown.Rule, shown.Reason = RuleNoMatchingPeer, "no peer receives it: this node has no BGP peer named "+strings.Join(r.Peers.List(), " or ")
		}
		if s, ok := g.answered[r.Prefix]; ok {
			shown.setLayer2(s, r.Mode == route.ModeLayer2 || g.Announcer == nil && g.Cloud == nil)
		}
		if g.detailed {
			shown.Advertisements, shown.Frontends = r.By, len(r.Frontends)
		}
		routes = append(routes, shown)
	}
	for _, r := range g.view.Plan.Refusals {
		routes = append(routes, Route{Prefix: r.Prefix, Rule: r.Rule, Reason: r.Reason})
	}
	routes = withWithdrawing(routes, g.view.Withdrawing)
	sortRoutes(routes)
	return routes
}

func (g *gatherer) announces() bool { return g.Announcer != nil || g.Layer2 != nil || g.Cloud != nil }

// lacks returns what the agent would need to advertise in a way, or "".
func (g *gatherer) lacks(m route.Mode) string {
	switch {
	case m == route.ModeBGP && g.Announcer == nil:
		return "has no BGP peer: configure one with --peer or a BGPPeer"
	case m == route.ModeLayer2 && g.Layer2 == nil:
		return "has no layer-2 interface: set --l2-interfaces (l2.interfaces in the chart)"
	case m == route.ModeCloud && g.Cloud == nil:
		return "has no cloud: set --cloud"
	}
	return ""
}

// toNobody reports whether names is not empty but matches no peer.
func toNobody(names route.Names, peers []advertise.Peer) bool {
	return names != "" && !slices.ContainsFunc(peers, func(p advertise.Peer) bool { return names.Has(p.Name) })
}

func sortRoutes(routes []Route) {
	slices.SortStableFunc(routes, func(a, b Route) int {
		return route.Route{Prefix: a.Prefix, NextHop: a.NextHop}.Compare(route.Route{Prefix: b.Prefix, NextHop: b.NextHop})
	})
}

// notAdvertised returns why a route of the plan is not advertised.
func (g *gatherer) notAdvertised(r plan.Route) (plan.Rule, string) {
	if !g.announces() {
		return RuleNoPeers, "this agent advertises no routes: configure BGP peers (--peer or a BGPPeer), layer-2 interfaces (--l2-interfaces) or a cloud (--cloud)"
	}
	if err := cmp.Or(g.view.Failures["route "+r.Prefix.String()], g.view.Failures["announcer"]); err != nil {
		return RulePending, err.Error()
	}
	for _, k := range r.Frontends {
		if why, refused := g.view.Refused[k]; refused {
			return RuleRejected, fmt.Sprintf("%s is rejected: %s", k, about(k.String(), why))
		}
		if _, held := g.view.Held[k]; !held {
			return RulePending, fmt.Sprintf("%s is not yet programmed into the data plane", k)
		}
	}
	return RulePending, "not advertised yet, or the agent is stopping"
}

// failures lists the failures that are being retried, in a stable order.
func (g *gatherer) failures() []problem.Problem {
	var problems []problem.Problem
	for _, what := range slices.Sorted(maps.Keys(g.view.Failures)) {
		problems = append(problems, problem.Failed(what, about(what, g.view.Failures[what].Error())+" (it is tried again)"))
	}
	return problems
}

// about returns an error message without the name of its object.
func about(object, message string) string { return strings.TrimPrefix(message, object+": ") }
