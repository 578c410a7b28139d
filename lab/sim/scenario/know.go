package scenario

import (
	"cmp"
	"slices"
)

// knowledge is what routers and load balancers know of the others at a given time. It may
// be outdated.
type knowledge struct {
	s *Scenario
	// services contains the services of each load balancer, by its name.
	services map[string][]int
	servers  [][]string // by service
	udp      []bool     // by service
	weights  map[string]uint32
	away     map[string]bool // absent, or detected as unreachable
	gone     map[string]bool // no longer waited for
	draining map[string]bool
	cut      map[[2]string]bool
}

// standing is a server in the view of a load balancer.
type standing struct {
	name     string
	weight   uint32
	draining bool
}

// newKnowledge returns the initial knowledge.
func newKnowledge(s *Scenario) *knowledge {
	k := &knowledge{s: s, services: map[string][]int{}, weights: map[string]uint32{}, away: map[string]bool{}, gone: map[string]bool{},
		draining: map[string]bool{}, cut: map[[2]string]bool{}}
	for i := range s.Services {
		for _, ref := range s.Services[i].Balancers {
			for _, b := range s.find(ref) {
				k.services[b] = append(k.services[b], i)
			}
		}
		var servers []string
		for _, ref := range s.Services[i].Servers {
			servers = append(servers, s.find(ref)...)
		}
		k.servers = append(k.servers, servers)
		k.udp = append(k.udp, slices.ContainsFunc(s.Load, func(l Load) bool { return l.To.Name == s.Services[i].Name && l.Protocol == UDP }))
	}
	for i := range s.Topology.Groups {
		g := &s.Topology.Groups[i]
		for j, name := range g.Names() {
			k.weights[name] = max(1, g.Weight)
			if j < len(g.Weights) {
				k.weights[name], k.draining[name] = max(1, g.Weights[j]), g.Weights[j] == 0
			}
			k.away[name], k.gone[name] = j >= g.Present, j >= g.Present
		}
	}
	return k
}

// hopsOf returns the load balancers to which a router forwards packets for a service:
// those that it reaches through lines, LANs and other routers. Paths through load
// balancers do not count, because BFD monitors the path to the next hop itself.
func (k *knowledge) hopsOf(router string, service int) (hops []string) {
	near := k.reach(router, Router)
	for _, ref := range k.s.Services[service].Balancers {
		for _, b := range k.s.find(ref) {
			if near[b] && !k.draining[b] {
				hops = append(hops, b)
			}
		}
	}
	return hops
}

// serversOf returns the servers of a service in the view of a load balancer. Unreachable
// ones drain until they are no longer waited for. With UDP they are removed immediately,
// as in package plan.
func (k *knowledge) serversOf(balancer string, service int) (all []standing) {
	near := k.reach(balancer, Router, Balancer)
	for _, name := range k.servers[service] {
		if !k.gone[name] && (near[name] || !k.udp[service]) {
			all = append(all, standing{name, k.weights[name], k.draining[name] || !near[name]})
		}
	}
	return all
}

// reach returns the members that a member can reach through members with one of these
// roles.
func (k *knowledge) reach(from string, by ...Role) map[string]bool {
	seen := map[string]bool{from: true}
	queue := []string{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		m := k.s.who[at]
		if m != nil && at != from && !slices.Contains(by, m.group.Role) {
			continue
		}
		for _, door := range k.doors(at) {
			if !seen[door] && !k.away[door] && !k.cut[ends(at, door)] {
				seen[door] = true
				queue = append(queue, door)
			}
		}
	}
	return seen
}

func (k *knowledge) doors(at string) (doors []string) {
	if m := k.s.who[at]; m != nil {
		return m.doors
	}
	for _, ref := range k.s.lans[at].Members {
		doors = append(doors, k.s.find(ref)...)
	}
	return doors
}

// lesson is a change of knowledge at a given time.
type lesson struct {
	at    float64
	learn func(*knowledge)
}

// waitedFor is how long an unresponsive server retains its flows, in seconds. It is the
// default of a Service.
const waitedFor = 30

// lessons returns what nodes learn from the events, sorted by time.
func (s *Scenario) lessons() (all []lesson) {
	for i := range s.Events {
		e := &s.Events[i]
		for _, subject := range s.subjects(e) {
			until := s.next(i, subject)
			for _, l := range e.teaches(subject, s) {
				if l.at < until || l.at == e.At {
					all = append(all, l)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b lesson) int { return cmp.Compare(a.at, b.at) })
	return all
}

// subjects returns the subjects of an event: names, or the ends of links separated by a
// space.
func (s *Scenario) subjects(e *Event) (all []string) {
	if len(e.What) == 1 {
		return s.find(e.What[0])
	}
	for _, key := range s.cuts(e) {
		all = append(all, key[0]+" "+key[1])
	}
	return all
}

// cuts returns the links that an event is about.
func (s *Scenario) cuts(e *Event) (all [][2]string) {
	of := func(ref Ref) []string {
		if s.lans[ref.Name] != nil {
			return []string{ref.Name}
		}
		return s.find(ref)
	}
	for _, a := range of(e.What[0]) {
		for _, b := range of(e.What[1]) {
			all = append(all, ends(a, b))
		}
	}
	return all
}

// next returns the time of the next event for a subject.
func (s *Scenario) next(event int, subject string) float64 {
	for i := event + 1; i < len(s.Events); i++ {
		if slices.Contains(s.subjects(&s.Events[i]), subject) {
			return s.Events[i].At
		}
	}
	return s.Duration
}

// teaches returns what nodes learn from an event about a subject.
func (e *Event) teaches(subject string, s *Scenario) []lesson {
	note := func(at float64, in func(*knowledge) map[string]bool, is bool) lesson {
		return lesson{at: at, learn: func(k *knowledge) { in(k)[subject] = is }}
	}
	away := func(k *knowledge) map[string]bool { return k.away }
	gone := func(k *knowledge) map[string]bool { return k.gone }
	draining := func(k *knowledge) map[string]bool { return k.draining }
	switch e.Action {
	case Dies:
		return []lesson{note(e.At+e.Noticed, away, true), note(e.At+e.Noticed+waitedFor, gone, true)}
	case Leaves:
		return []lesson{note(e.At, away, true), note(e.At, gone, true)}
	case Drains:
		return []lesson{note(e.At, draining, true)}
	case Joins:
		return []lesson{note(e.At, away, false), note(e.At, gone, false), note(e.At, draining, false)}
	}
	var all []lesson
	for _, key := range s.cuts(e) {
		if key[0]+" "+key[1] != subject {
			continue
		}
		at, is := e.At, e.Action == Cuts
		if is {
			at += e.Noticed
		}
		all = append(all, lesson{at, func(k *knowledge) { k.cut[key] = is }})
	}
	return all
}
