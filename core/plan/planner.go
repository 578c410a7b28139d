package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/service"
)

// Planner builds one plan after the other, and decides again only on Services for which
// something has changed. Its plans are those of Build. The zero value is ready. It is not
// safe for concurrent use.
type Planner struct {
	decided map[*service.Service]*decision
	probes  probes
	// last has what decisions depend on, besides what decision.stands checks.
	last Input
}

// decision is what was decided on a Service, before conflicts.
type decision struct {
	frontends []Frontend
	// known means that no first probe is pending: then the state of the data plane makes no
	// difference.
	known bool
	// unadvertised are the results of notAdvertised, if any frontend needs one.
	unadvertised []string
	current      bool // in the plan that is being built
}

// Build computes the plan, and which targets to probe from now on, or no longer. Services
// are immutable: the same pointer is the same Service. changed has the addresses of targets
// whose health may have changed since the last call; nil: any.
func (m *Planner) Build(in Input, changed map[netip.Addr]bool) (p *Plan, probe, forget []health.Target) {
	if changed == nil || !m.last.decidesAs(in) {
		changed = nil
	}
	m.last = in
	n := 0
	for _, s := range in.Services {
		n += len(s.Frontends)
	}
	p = &Plan{Frontends: make([]Frontend, 0, n)}
	drains := quarantinesOf(in.Quarantines)
	gone := m.decide(p, in, drains, changed)
	p.refuseConflicts(in)
	probe, forget = m.probes.update(p.Frontends, gone)
	p.collectRoutes(in)
	if len(drains) > 0 {
		p.collectQuarantines()
	}
	return p, probe, forget
}

// decidesAs reports whether decisions depend on the same nodes and orders in both inputs.
func (in Input) decidesAs(o Input) bool {
	return in.Node.Name == o.Node.Name && in.Node.Only == o.Node.Only && maps.Equal(in.Nodes, o.Nodes) && slices.Equal(in.Quarantines, o.Quarantines)
}

// decide adds the decisions on all Services to a plan, and returns those that are not valid
// any more.
func (m *Planner) decide(p *Plan, in Input, drains quarantines, changed map[netip.Addr]bool) (gone []*decision) {
	if m.decided == nil {
		m.decided = make(map[*service.Service]*decision, len(in.Services))
	}
	for _, s := range in.Services {
		d := m.decided[s]
		if d == nil || !d.stands(in, s, changed) {
			if d != nil {
				gone = append(gone, d)
			}
			d = decideOn(in, drains, s)
			m.decided[s] = d
		}
		d.current = true
		p.Frontends = append(p.Frontends, d.frontends...)
	}
	for s, d := range m.decided {
		if !d.current {
			gone = append(gone, d)
			delete(m.decided, s)
		}
		d.current = false
	}
	return gone
}

func decideOn(in Input, drains quarantines, s *service.Service) *decision {
	d := &decision{frontends: make([]Frontend, 0, len(s.Frontends)), known: true, unadvertised: in.unadvertised(s)}
	t := targetsOf(s)
	for i := range s.Frontends {
		why := ""
		if d.unadvertised != nil {
			why = d.unadvertised[i]
		}
		f, known := decide(in, drains, s, t, &s.Frontends[i], why)
		f.probed = &probed{backends: f.Backends}
		d.frontends, d.known = append(d.frontends, f), d.known && known
	}
	return d
}

// unadvertised returns why addresses of a Service are not served here, nil if none needs to
// be advertised for that.
func (in Input) unadvertised(s *service.Service) (why []string) {
	if in.Announce == nil || !slices.ContainsFunc(s.Frontends, func(f service.Frontend) bool { return f.Kind != service.LoadBalancerAddress }) {
		return nil
	}
	for i := range s.Frontends {
		why = append(why, in.notAdvertised(s, &s.Frontends[i]))
	}
	return why
}

// stands reports whether a decision would be the same again.
func (d *decision) stands(in Input, s *service.Service, changed map[netip.Addr]bool) bool {
	if changed == nil || !d.known || !slices.Equal(d.unadvertised, in.unadvertised(s)) {
		return false
	}
	if len(changed) == 0 {
		return true
	}
	for i := range s.Frontends {
		for j := range s.Frontends[i].Backends {
			if changed[s.Frontends[i].Backends[j].Addr.Addr()] {
				return false
			}
		}
	}
	return true
}

// probed is what one decision on a frontend adds to the targets.
type probed struct {
	backends []Backend
	counted  bool
}

// probes counts how many frontends need each target.
type probes struct {
	users  map[probeKey]int32
	checks map[service.HealthCheck]int // numbers, from 1
	last   service.HealthCheck         // nearly all targets of a Service have the same check
	lastID int
}

// probeKey is a Target, but cheaper to compare.
type probeKey struct {
	addr  netip.AddrPort
	check int
}

// update counts the frontends of a plan instead of those of decisions that are gone. It
// returns the targets that are new, and those that no frontend needs any more.
func (c *probes) update(frontends []Frontend, gone []*decision) (added, removed []health.Target) {
	if c.users == nil {
		c.users, c.checks = map[probeKey]int32{}, map[service.HealthCheck]int{}
	}
	var less []*probed
	for i := range frontends {
		switch f := &frontends[i]; {
		case f.State.Elsewhere():
			less = append(less, f.probed)
		case !f.probed.counted:
			added = c.count(f.probed, 1, added)
		}
	}
	for _, d := range gone {
		for i := range d.frontends {
			less = append(less, d.frontends[i].probed)
		}
	}
	for _, p := range less { // afterwards: what only moves is neither new nor gone
		if p.counted {
			removed = c.count(p, -1, removed)
		}
	}
	return added, removed
}

// count adds 1 or -1 to the users of a frontend's targets, and appends those that have their
// first or no longer any.
func (c *probes) count(p *probed, by int32, changed []health.Target) []health.Target {
	p.counted = by > 0
	for i := range p.backends {
		t := &p.backends[i].Target
		if t.Check.Kind == service.CheckNone {
			continue
		}
		k := c.key(t)
		n := c.users[k] + by
		if c.users[k] = n; n == 0 {
			delete(c.users, k)
		}
		if n == max(by, 0) {
			changed = append(changed, *t)
		}
	}
	return changed
}

func (c *probes) key(t *health.Target) probeKey {
	if c.lastID == 0 || t.Check != c.last {
		id := c.checks[t.Check]
		if id == 0 {
			id = len(c.checks) + 1
			c.checks[t.Check] = id
		}
		c.last, c.lastID = t.Check, id
	}
	return probeKey{t.Addr, c.lastID}
}
