package rates

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/reconciler"
)

// index holds what rows need of a view, computed once for all requests until the agent has
// another view.
type index struct {
	view *reconciler.View
	// frontends are sorted by Service and Key.
	frontends []frontend
	services  []group
	// backends are sorted by address; nil until they are needed.
	backends []backend
}

// frontend is one of the plan.
type frontend struct {
	*plan.Frontend
	service, key string
	// text is what a filter searches, in lower case.
	text     string
	state    plan.State
	reason   string
	severity int
	up       int
}

// group is the frontends of a Service: those from first to below end.
type group struct{ first, end int }

// backend is an address, on how many frontends it is a backend, and the one where its
// health is worst.
type backend struct {
	addr      netip.AddrPort
	text      string
	frontends int
	worst     place
	harm      int
}

// place is a backend of a frontend of an index.
type place struct{ frontend, backend int }

// severities orders states from the worst to the best. Others come first.
var severities = []plan.State{
	plan.NoHealthyBackend, plan.Panic, status.Rejected, plan.Conflict, status.Pending, plan.NoEndpoints, plan.AwaitingHealth,
	plan.Draining, plan.NotAdvertised, plan.DedicatedElsewhere, status.Idle, plan.Active,
}

// severity is 0 for the best state.
func severity(s plan.State) int {
	return len(severities) - 1 - slices.Index(severities, s)
}

func newIndex(a status.Agent, view *reconciler.View) *index {
	x := &index{view: view, frontends: make([]frontend, len(view.Plan.Frontends))}
	for i := range x.frontends {
		f := &view.Plan.Frontends[i]
		one := frontend{Frontend: f, service: f.Service.ID.String(), key: f.Key.String()}
		one.state, one.reason = a.FrontendState(view, f)
		one.severity = severity(one.state)
		one.text = strings.ToLower(one.service + "\n" + one.key + "\n" + string(one.state))
		for j := range f.Backends {
			if f.Backends[j].Health == health.Up {
				one.up++
			}
		}
		x.frontends[i] = one
	}
	slices.SortStableFunc(x.frontends, func(a, b frontend) int { return a.Service.ID.Compare(b.Service.ID) })
	for i := range x.frontends {
		if i == 0 || x.frontends[i].service != x.frontends[i-1].service {
			x.services = append(x.services, group{first: i})
		}
		x.services[len(x.services)-1].end = i + 1
	}
	return x
}

// of returns the frontends of a group.
func (x *index) of(g group) []frontend { return x.frontends[g.first:g.end] }

// worst returns the frontend with the worst state.
func (x *index) worst(g group) *frontend {
	all := x.of(g)
	worst := &all[0]
	for i := range all {
		if all[i].severity > worst.severity {
			worst = &all[i]
		}
	}
	return worst
}

// byAddress returns the backends of all frontends by address.
func (x *index) byAddress() []backend {
	if x.backends != nil {
		return x.backends
	}
	at := map[netip.AddrPort]int{}
	x.backends = []backend{}
	for i := range x.frontends {
		for j := range x.frontends[i].Backends {
			p := place{i, j}
			b := x.at(p)
			n, known := at[b.Addr]
			if !known {
				n = len(x.backends)
				at[b.Addr] = n
				x.backends = append(x.backends, x.backend(p))
			}
			one := &x.backends[n]
			one.frontends++
			if h := harm(b); h > one.harm {
				one.worst, one.harm = p, h
			}
		}
	}
	slices.SortFunc(x.backends, func(a, b backend) int { return a.addr.Compare(b.addr) })
	return x.backends
}

// backend returns a backend at one place.
func (x *index) backend(p place) backend {
	b := x.at(p)
	return backend{addr: b.Addr, text: strings.ToLower(b.Addr.String() + "\n" + b.Name + "\n" + b.Node + "\n" + b.Health.String()), worst: p, harm: harm(b)}
}

func (x *index) at(p place) *plan.Backend { return &x.frontends[p.frontend].Backends[p.backend] }

// harm orders backends by state: those that are down have the highest.
func harm(b *plan.Backend) int {
	switch {
	case b.Health == health.Down, b.Health == health.Removed:
		return 3
	case b.Health != health.Up:
		return 2
	case b.Draining():
		return 1
	}
	return 0
}
