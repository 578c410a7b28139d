package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
)

// held is a frontend as load balancers would program it.
type held struct {
	plan.Frontend
	// names contains the names that a scenario may use for it, the full name last.
	names []string
}

func (h held) name() string { return h.names[len(h.names)-1] }

// Refused is a frontend in the manifests that no load balancer would program, with the
// reason.
type Refused struct{ Frontend, State, Reason string }

// ParseFor reads a scenario whose services come from manifests: the frontends that a load
// balancer would plan if all servers pass their health checks. Errors are of type
// Problems. It accepts any text without panicking.
func ParseFor(services []*service.Service, file string, text []byte, files Files) (*Scenario, []Refused, error) {
	r := &reader{Reader: reading.Reader{File: file}, files: files, held: []held{}}
	var refused []Refused
	frontends := planned(services)
	alike := map[string]int{} // by Service and port
	for _, f := range frontends {
		alike[portOf(f)]++
	}
	for _, f := range frontends {
		id := f.Service.ID
		h := held{f, []string{id.Name, fmt.Sprint(id.Name, ":", f.Key.Port), id.String(), portOf(f)}}
		if alike[portOf(f)] > 1 { // of several VIPs or protocols
			h.names = append(h.names, id.String()+" "+f.Key.String())
		}
		if f.Want == nil {
			refused = append(refused, Refused{h.name(), string(f.State), f.Reason})
			continue
		}
		r.held = append(r.held, h)
	}
	s, err := r.parse(text)
	return s, refused, err
}

// portOf returns the name of a frontend's Service and port.
func portOf(f plan.Frontend) string { return fmt.Sprint(f.Service.ID, ":", f.Key.Port) }

// planned returns what load balancers plan for all frontends. Those of a dedicated
// Service are planned separately, and the others together.
func planned(services []*service.Service) (all []plan.Frontend) {
	in := plan.Input{
		Services: services,
		Health:   func(health.Target) health.State { return health.Up },
	}
	for _, f := range plan.Build(in).Frontends {
		if f.State == plan.DedicatedElsewhere {
			alone := in
			alone.Node.Only = f.Service.ID
			for _, own := range plan.Build(alone).Frontends {
				if own.Service == f.Service && own.Key == f.Key {
					f = own
				}
			}
		}
		all = append(all, f)
	}
	return all
}

// nameOfService reads the name of a service. With manifests, it may include a namespace
// and a port.
func (r *reader) nameOfService(into *Ref) reading.Field {
	if r.held == nil {
		return r.ref(into)
	}
	return func(n *yaml.Node, at string) {
		text, ok := r.Scalar(n, at, "the name of a Service")
		*into = Ref{text, n.Line}
		if ok && len(r.meant(text)) == 0 {
			r.Refuse(n.Line, at, "no programmed Service in the manifests is named %q; want one of %s", text, r.known())
		}
	}
}

// meant returns the frontends that a name refers to.
func (r *reader) meant(name string) (all []held) {
	for _, h := range r.held {
		if slices.Contains(h.names, name) {
			all = append(all, h)
		}
	}
	return all
}

func (r *reader) known() string {
	var names []string
	for _, h := range r.held {
		names = append(names, h.name())
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// adopt adds the manifests' frontends as the scenario's services, with their servers.
func (r *reader) adopt(s *Scenario) {
	servers := r.servers(s)
	for _, h := range r.held {
		of := servers[h.name()]
		if of == nil {
			continue // no group represents its servers, so it gets no load either
		}
		s.Services = append(s.Services, Service{
			Name: h.name(), Line: of.Line, Method: h.Want.Method, Scheduler: h.Want.Scheduler, Survival: survival(h), RingSize: h.Want.RingSize,
			Balancers: balancersFor(s, r, h), Servers: []Ref{{of.Name, of.Line}}, Timeout: defaultTimeout,
		})
	}
	for i := range s.Load {
		r.ask(s, &s.Load[i], fmt.Sprintf("load[%d].to", i))
	}
}

// survival returns the connection-consistency mode of a frontend.
func survival(h held) service.Survival {
	switch {
	case h.Want.Stateful():
		return service.FlowTable
	case h.Want.SecondChance():
		return service.SecondChance
	}
	return service.HashOnly
}

// servers returns the groups that represent Services' servers, by the names of their
// frontends, and sets the values that come from the manifests.
func (r *reader) servers(s *Scenario) map[string]*Group {
	groups := map[string]*Group{}
	for i := range s.Topology.Groups {
		g := &s.Topology.Groups[i]
		field := fmt.Sprintf("topology.servers %s", g.Name)
		if g.Role != Server {
			continue
		}
		hs := r.meant(g.Of.Name)
		first, backends := hs[0], hs[0].Want.Backends
		for _, h := range hs[1:] {
			if !first.sharesServers(h) {
				r.Refuse(g.Of.Line, field+".of", "%s is ambiguous: %s or %s", g.Of.Name, first.name(), h.name())
			}
		}
		if was := groups[first.name()]; was != nil {
			r.Refuse(g.Of.Line, field+".of", "%s are already the servers of %s", was.Name, first.name())
			continue
		}
		for _, h := range r.held {
			if first.sharesServers(h) {
				groups[h.name()] = g
			}
		}
		g.Count, g.Present, g.Missed = len(backends)+g.Spare, len(backends), missed(first.Service.Health)
		for _, b := range backends {
			g.Weights = append(g.Weights, b.Weight)
		}
	}
	return groups
}

// sharesServers reports whether another frontend of the same Service has the same
// servers. IPv4 and IPv6 VIPs have different ones.
func (h held) sharesServers(o held) bool {
	return h.Service.ID == o.Service.ID && slices.EqualFunc(h.Want.Backends, o.Want.Backends, func(a, b service.Backend) bool {
		return a.Addr.Addr() == b.Addr.Addr()
	})
}

// missed returns the time, in seconds, until a dead server is detected: half an interval
// until the next check, and as many checks as it takes.
func missed(c service.HealthCheck) float64 {
	return (float64(c.Fall)-0.5)*c.Interval.Seconds() + c.Timeout.Seconds()
}

// balancersFor returns the load balancers that have a frontend.
func balancersFor(s *Scenario, r *reader, h held) (refs []Ref) {
	for _, g := range s.Topology.Groups {
		if g.Role != Balancer {
			continue
		}
		only := g.Only.Name != "" && slices.Contains(h.names, g.Only.Name)
		if only || g.Only.Name == "" && !h.Service.Dedicated {
			refs = append(refs, Ref{g.Name, g.Line})
		}
	}
	return refs
}

// ask sets the full name of a load's service.
func (r *reader) ask(s *Scenario, l *Load, field string) {
	var names []string
	for _, h := range r.meant(l.To.Name) {
		if slices.ContainsFunc(s.Services, func(s Service) bool { return s.Name == h.name() }) {
			names = append(names, h.name())
		}
	}
	switch len(names) {
	case 1:
		l.To.Name = names[0]
	case 0:
		r.Refuse(l.To.Line, field, "no group of servers belongs to %s: add one to topology.servers", l.To.Name)
	default:
		r.Refuse(l.To.Line, field, "%s is ambiguous: %s", l.To.Name, strings.Join(names, " or "))
	}
}
