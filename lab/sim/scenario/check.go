package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/suggest"
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
	"github.com/fairlead/fairlead/lab/sim/scenario/requests"
)

// mostIntervals limits the size of the results.
const mostIntervals = 10_000

// mostForwarding limits the number of nodes to which all others have paths.
const mostForwarding = 5000

// mostLinks limits the number of links, counting those between groups individually.
const mostLinks = 200_000

// check rejects what is syntactically valid but impossible.
func check(r *reader, s *Scenario) {
	if s.Interval > s.Duration || s.Duration/s.Interval > mostIntervals {
		r.Refuse(s.line, "interval", "%s: want 1 to %[3]d intervals in the duration, %[2]s", reading.Show(s.Interval, reading.Seconds), reading.Show(s.Duration, reading.Seconds), mostIntervals)
	}
	c := &checker{reader: r, s: s, who: map[string]*member{}, groups: map[string]*Group{}}
	defer func() { s.who, s.lans = c.who, c.lans }()
	for _, step := range []func(){c.members, c.joined, c.services, c.behind, c.load, c.ways, c.events} {
		if step(); len(c.Problems) > 0 {
			return
		}
	}
}

// member is one member of a group.
type member struct {
	name    string
	group   *Group
	present bool
	doors   []string // the members it has links with, and its LANs
}

type checker struct {
	*reader
	s      *Scenario
	who    map[string]*member
	groups map[string]*Group
	lans   map[string]*LAN
	links  map[[2]string]int // the lines of links in the file, by their ends in order
}

// Names returns the names of the members of a group.
func (g *Group) Names() []string {
	switch {
	case g.Count == 0:
		return []string{g.Name}
	case len(g.names) != g.Count:
		g.names = make([]string, g.Count)
		for i := range g.names {
			g.names[i] = fmt.Sprintf("%s-%d", g.Name, i+1)
		}
	}
	return g.names
}

// members registers all names and rejects duplicates.
func (c *checker) members() {
	lines := map[string]int{}
	taken := func(name string, line int, field string) bool {
		if was := lines[name]; was != 0 {
			c.Refuse(line, field, "%s already exists, in line %d: rename one of the two", name, was)
			return true
		}
		lines[name] = line
		return false
	}
	total, forwarding := 0, 0
	for i := range c.s.Topology.Groups {
		g := &c.s.Topology.Groups[i]
		field := fmt.Sprintf("topology.%s %s", g.Role, g.Name)
		if total += max(1, g.Count); total > reading.MostNodes {
			c.Refuse(g.Line, field, "more than %d nodes in total", reading.MostNodes)
			return
		}
		if g.Role != Client {
			forwarding += max(1, g.Count)
		}
		if forwarding > mostForwarding {
			c.Refuse(g.Line, field, "more than %d routers, balancers and servers in total", mostForwarding)
			return
		}
		if g.Present > max(1, g.Count) {
			c.Refuse(g.Line, field, "present is %d, but count is %d", g.Present, max(1, g.Count))
		}
		names := g.Names()
		if g.Count > 0 && taken(g.Name, g.Line, field) {
			continue
		}
		c.groups[g.Name] = g
		for j, name := range names {
			if !taken(name, g.Line, field) {
				c.who[name] = &member{name: name, group: g, present: j < g.Present}
			}
		}
	}
	c.lans = map[string]*LAN{}
	for i := range c.s.Topology.LANs {
		l := &c.s.Topology.LANs[i]
		if !taken(l.Name, l.Line, "topology.lans "+l.Name) {
			c.lans[l.Name] = l
		}
	}
}

// find returns the members that a name refers to, or none if the name is rejected.
func (c *checker) find(ref Ref, field string, want ...Role) []string {
	g := c.groups[ref.Name]
	var names []string
	if m := c.who[ref.Name]; m != nil {
		g, names = m.group, []string{ref.Name}
	} else if g != nil {
		names = g.Names()
	}
	switch {
	case g == nil:
		c.Refuse(ref.Line, field, "%s does not exist%s", ref.Name, suggest.DidYouMean(ref.Name, c.names()))
		return nil
	case len(want) > 0 && !slices.Contains(want, g.Role):
		c.Refuse(ref.Line, field, "%s is one of %s, want one of %s", ref.Name, g.Role, reading.All(want))
		return nil
	}
	return names
}

// names returns all valid names, sorted. Of large groups it includes only the first
// members.
func (c *checker) names() (names []string) {
	for _, g := range c.s.Topology.Groups {
		names = append(names, g.Name)
		if g.Count > 0 {
			names = append(names, g.Names()[:min(g.Count, 20)]...)
		}
	}
	slices.Sort(names)
	return names
}

// joined checks links and LANs.
func (c *checker) joined() {
	c.links = map[[2]string]int{}
	for i, l := range c.s.Topology.Links {
		field := fmt.Sprintf("topology.links[%d].between", i)
		as, bs := c.find(l.Between[0], field), c.find(l.Between[1], field)
		if len(c.links)+len(as)*len(bs) > mostLinks {
			c.Refuse(l.Line, field, "more than %d links in total", mostLinks)
			return
		}
		for _, a := range as {
			for _, b := range bs {
				c.link(a, b, l.Line, field)
			}
		}
	}
	for i, l := range c.s.Topology.LANs {
		field := fmt.Sprintf("topology.lans[%d].members", i)
		for _, ref := range l.Members {
			for _, name := range c.find(ref, field) {
				m := c.who[name]
				if slices.Contains(m.doors, l.Name) {
					c.Refuse(ref.Line, field, "%s occurs in %s twice", name, l.Name)
				}
				m.doors = append(m.doors, l.Name)
				if l.Kind == Switched {
					c.links[ends(l.Name, name)] = ref.Line
				}
			}
		}
	}
}

func (c *checker) link(a, b string, line int, field string) {
	key := ends(a, b)
	switch was := c.links[key]; {
	case a == b:
		c.Refuse(line, field, "a link from %s to itself", a)
	case was != 0:
		c.Refuse(line, field, "%s and %s already have a link, in line %d", a, b, was)
	default:
		c.links[key] = line
		c.who[a].doors, c.who[b].doors = append(c.who[a].doors, b), append(c.who[b].doors, a)
	}
}

// ends returns the two ends of a link in order.
func ends(a, b string) [2]string {
	if a > b {
		a, b = b, a
	}
	return [2]string{a, b}
}

func (c *checker) services() {
	lines := map[string]int{}
	for i := range c.s.Services {
		s := &c.s.Services[i]
		field := fmt.Sprintf("services[%d]", i)
		if was := lines[s.Name]; was != 0 {
			c.Refuse(s.Line, field, "%s already exists, in line %d: rename one of the two", s.Name, was)
		}
		lines[s.Name] = s.Line
		c.survival(s, field+".connectionConsistency")
		switch {
		case s.Buckets > 0 && s.Survival != service.FlowTable:
			c.Refuse(s.Line, field+".buckets", "flows are not tracked with connection consistency %s; want %s", s.Survival, service.FlowTable)
		case s.Looks > 0 && s.Buckets == 0:
			c.Refuse(s.Line, field+".looks", "no hash chains to search: set buckets")
		}
		if len(s.Balancers) == 0 {
			for _, g := range c.s.Topology.Groups {
				if g.Role == Balancer {
					s.Balancers = append(s.Balancers, Ref{g.Name, s.Line})
				}
			}
		}
		if len(s.Balancers) == 0 {
			c.Refuse(s.Line, field+".balancers", "no balancer exists")
		}
		c.distinct(s.Balancers, field+".balancers", Balancer)
		c.distinct(s.Servers, field+".servers", Server, Balancer)
	}
}

// behind rejects load balancers as servers that do not lead to servers. What arrives at
// one is for its service, and must not come back.
func (c *checker) behind() {
	of := map[string][]*Service{} // by load balancer
	for i := range c.s.Services {
		for _, b := range c.all(c.s.Services[i].Balancers) {
			of[b] = append(of[b], &c.s.Services[i])
		}
	}
	leads := map[*Service]map[*Service]bool{}
	for i := range c.s.Services {
		s := &c.s.Services[i]
		leads[s] = map[*Service]bool{}
		for _, ref := range s.Servers {
			for _, name := range c.find(ref, "") {
				switch {
				case c.who[name].group.Role != Balancer:
				case len(of[name]) != 1:
					c.Refuse(ref.Line, fmt.Sprintf("services[%d].servers", i), "%s is a balancer of %d services: as a server, it must be a balancer of a single service", name, len(of[name]))
					return
				default:
					leads[s][of[name][0]] = true
				}
			}
		}
	}
	for i := range c.s.Services {
		if s := &c.s.Services[i]; returns(leads, s) {
			c.Refuse(s.Line, fmt.Sprintf("services[%d].servers", i), "packets for %s would return to its own balancers", s.Name)
		}
	}
}

// returns reports whether some path from a service leads back to it.
func returns(leads map[*Service]map[*Service]bool, s *Service) bool {
	seen := map[*Service]bool{}
	queue := []*Service{s}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for next := range leads[at] {
			if next == s {
				return true
			}
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return false
}

// survival sets the connection-consistency mode, by default the best possible one.
func (c *checker) survival(s *Service, field string) {
	best := (&service.Service{Method: s.Method, Scheduler: s.Scheduler}).DefaultSurvival()
	switch {
	case s.Survival == "":
		s.Survival = best
	case best == service.FlowTable && s.Survival != best:
		c.Refuse(s.Line, field, "%s is not possible with method %s and scheduler %s, which require tracked flows; want %s",
			s.Survival, s.Method, s.Scheduler, best)
	}
}

// distinct resolves names and rejects members that are named twice.
func (c *checker) distinct(refs []Ref, field string, want ...Role) {
	seen := map[string]bool{}
	for _, ref := range refs {
		for _, name := range c.find(ref, field, want...) {
			if seen[name] {
				c.Refuse(ref.Line, field, "%s is named twice", name)
			}
			seen[name] = true
		}
	}
}

func (c *checker) load() {
	asked := map[string]int{}
	for i := range c.s.Load {
		l := &c.s.Load[i]
		field := fmt.Sprintf("load[%d]", i)
		for _, client := range c.find(l.From, field+".from", Client) {
			if was := asked[client]; was != 0 {
				c.Refuse(l.Line, field+".from", "%s already has a load, in line %d: add other clients", client, was)
				break
			}
			asked[client] = l.Line
		}
		if c.service(l.To.Name) == nil {
			var names []string
			for _, s := range c.s.Services {
				names = append(names, s.Name)
			}
			c.Refuse(l.To.Line, field+".to", "no service %s; want one of %s", l.To.Name, strings.Join(names, ", "))
		}
		c.schedule(l, field)
	}
	for _, g := range c.s.Topology.Groups {
		for _, name := range g.Names() {
			if g.Role == Client && asked[name] == 0 {
				c.Refuse(g.Line, "topology.clients "+g.Name, "%s sends no requests: add it to load", name)
				break
			}
		}
	}
}

// schedule checks when and how a load arrives.
func (c *checker) schedule(l *Load, field string) {
	if l.End == 0 {
		l.End = c.s.Duration
	}
	switch {
	case l.Arrivals == Trace && (l.Rate > 0 || len(l.Trace) == 0):
		c.Refuse(l.Line, field, "a trace needs a file or times, and no rate")
	case l.doubled:
		c.Refuse(l.Line, field, "a trace has a file or times, not both")
	case l.Arrivals != Trace && (l.Rate == 0 || len(l.Trace) > 0):
		c.Refuse(l.Line, field, "%s arrivals have a rate and no trace", l.Arrivals)
	case l.Start >= l.End:
		c.Refuse(l.Line, field, "it starts at %s and ends at %s", reading.Show(l.Start, reading.Seconds), reading.Show(l.End, reading.Seconds))
	case l.End > c.s.Duration:
		c.Refuse(l.Line, field+".end", "%s is after the end, %s", reading.Show(l.End, reading.Seconds), reading.Show(c.s.Duration, reading.Seconds))
	case !slices.IsSortedFunc(l.Trace, func(a, b requests.Asked) int { return cmp.Compare(a.At, b.At) }):
		c.Refuse(l.Line, field+".times", "they are not in order")
	case l.Protocol == UDP && (l.Requests > 1 || l.Pause > 0):
		c.Refuse(l.Line, field, "requests and pause apply to connections, which udp does not have")
	}
}

func (c *checker) service(name string) *Service {
	i := slices.IndexFunc(c.s.Services, func(s Service) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.s.Services[i]
}
