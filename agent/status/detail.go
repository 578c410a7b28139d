package status

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// liveFrontend is a frontend as read from the kernel, nil if it has none, or the error.
type liveFrontend struct {
	*dataplane.Programmed
	err error
}

// read reads the counters: those of all frontends, or only of the selected ones if the
// data plane can.
func (g *gatherer) read() error {
	g.live, g.counts = map[service.Key]liveFrontend{}, map[service.Key]dataplane.FrontendCounters{}
	r, ok := g.DataPlane.(dataplane.Reader)
	if !g.detailed || !ok {
		all, err := g.DataPlane.Counters()
		g.counts = make(map[service.Key]dataplane.FrontendCounters, len(all))
		for _, c := range all {
			g.counts[c.Key] = c
		}
		return err
	}
	for i := range g.view.Plan.Frontends {
		k := g.view.Plan.Frontends[i].Key
		if _, known := g.live[k]; known {
			continue
		}
		p, err := r.Read(k)
		if g.live[k] = (liveFrontend{p, err}); p != nil {
			g.counts[k] = p.Counters
		}
	}
	return nil
}

// detail adds the details of a frontend and its backends.
func (g *gatherer) detail(f *plan.Frontend, out *Frontend) {
	var has *desired.Frontend
	live, isLive := g.live[f.Key]
	if h, held := g.view.Held[f.Key]; held {
		has = &h
	}
	if isLive && live.err == nil {
		has = nil
		if live.Programmed != nil {
			has = &live.Frontend
		}
	}
	if f.State == plan.Conflict { // the Key is its owner's
		has = nil
	}
	out.Detail = selection.FrontendOf(f, has, g.same)
	out.Detail.Live = isLive && live.err == nil
	if live.err != nil {
		out.Detail.Error = live.err.Error()
	}
	for i, b := range f.Backends {
		out.Backends[i].Detail = selection.BackendOf(b)
		if has != nil && live.Programmed != nil {
			out.Detail.Slots = live.Slots
			out.Backends[i].Detail.Slots = live.Owned[b.Addr]
		}
	}
}

// same reports whether the data plane does not distinguish two frontends.
func (g *gatherer) same(a, b desired.Frontend) bool {
	if c, ok := g.DataPlane.(dataplane.Canonical); ok {
		a, b = c.Canonical(a), c.Canonical(b)
	}
	return a.Same(b)
}

// maxPaths limits for how many backends the kernel is queried.
const maxPaths = 256

// paths adds to each backend how the kernel sends packets to it.
func (g *gatherer) paths(services []Service) []problem.Problem {
	if g.Paths == nil || !g.detailed {
		return nil
	}
	var to []netip.Addr
	each := func(f func(*Backend)) {
		for i := range services {
			for j := range services[i].Frontends {
				for k := range services[i].Frontends[j].Backends {
					f(&services[i].Frontends[j].Backends[k])
				}
			}
		}
	}
	each(func(b *Backend) {
		if len(to) < maxPaths {
			to = append(to, b.Address.Addr())
		}
	})
	paths, err := g.Paths(to)
	if err != nil {
		return []problem.Problem{problem.Failed("routes to backends", fmt.Sprintf("reading them: %v", err))}
	}
	each(func(b *Backend) {
		if p, ok := paths[b.Address.Addr()]; ok && b.Detail != nil {
			b.Detail.Path = &p
		}
	})
	return nil
}
