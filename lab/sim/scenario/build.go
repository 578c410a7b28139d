package scenario

import (
	"slices"

	"github.com/fairlead/fairlead/lab/sim"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// site is a scenario's network in the simulator.
type site[T sim.Time] struct {
	*sim.Net[T]
	s     *Scenario
	nodes map[string]sim.Node
	lines map[[2]string]sim.Line // by their ends in order
	vips  []sim.Node             // by service
	// fronts contains a load balancer's parts, by service. If it has only one service,
	// the part is the load balancer itself.
	fronts map[string]map[int]sim.Node
	// clients, balancers and servers are in the order of the file.
	routers, clients, balancers, servers []string
	watch                                *watch
	// hash is the secret of the routers' hash. All routers use the same, so that a flow
	// that moves to another router takes the same hop there. Another seed selects other
	// hops.
	hash uint32
}

// inside is the rate that connects a load balancer with its parts. Nothing is lost there,
// and nothing takes time.
const inside, insideQueue = 1e15, 1 << 30

// build returns the network, with everything that will happen in it.
func build[T sim.Time](s *Scenario, seed uint32) (*site[T], error) {
	n := &site[T]{
		Net: sim.New[T](sim.Config{Seed: seed, PacketBytes: s.Packet, Bin: s.Interval}), s: s, nodes: map[string]sim.Node{},
		lines: map[[2]string]sim.Line{}, fronts: map[string]map[int]sim.Node{}, watch: newWatch(s), hash: seed,
	}
	for _, svc := range s.Services {
		n.vips = append(n.vips, n.VIP(svc.Name))
	}
	k := newKnowledge(s)
	for _, role := range []Role{Server, Balancer, Router} {
		for i := range s.Topology.Groups {
			if g := &s.Topology.Groups[i]; g.Role == role {
				if err := n.group(g, k); err != nil {
					return nil, err
				}
			}
		}
	}
	random := stochastic.NewStream(seed)
	for i := range s.Load {
		n.load(i, random)
	}
	n.join()
	for _, r := range n.routers {
		if err := n.routes(r, k); err != nil {
			return nil, err
		}
	}
	n.happen(k)
	return n, nil
}

// group adds the members of a group, except clients.
func (n *site[T]) group(g *Group, k *knowledge) error {
	for i, name := range g.Names() {
		switch g.Role {
		case Server:
			server := sim.Server{Name: name, Cores: g.Cores, Queue: g.Queue}
			if g.Takes > 0 {
				server.Takes = g.Tail.draw(g.Takes)
			}
			n.nodes[name] = n.Server(server)
			n.servers = append(n.servers, name)
		case Balancer:
			n.balancers = append(n.balancers, name)
			if err := n.balancer(g, name, k); err != nil {
				return err
			}
		case Router:
			n.nodes[name] = n.Router(name, n.hash)
			n.routers = append(n.routers, name)
		}
		if i >= g.Present {
			n.Do(0, func() error { return n.kill(name) })
		}
	}
	return nil
}

// balancer adds a load balancer. If it has several services, it becomes a router to its
// parts, each of which has one service.
func (n *site[T]) balancer(g *Group, name string, k *knowledge) error {
	if n.fronts[name] != nil {
		return nil // already added as a server of another one
	}
	n.fronts[name] = map[int]sim.Node{}
	serves := k.services[name]
	if err := n.below(serves, k); err != nil {
		return err
	}
	takes := g.Takes
	if len(serves) != 1 {
		n.nodes[name] = n.Router(name, 0)
		takes /= 2 // packets pass it on their way in and on their way out
	}
	for _, i := range serves {
		part := name
		if len(serves) > 1 {
			part += "/" + n.s.Services[i].Name
		}
		id, err := n.front(part, name, i, k)
		if err != nil {
			return err
		}
		n.fronts[name][i] = id
		if len(serves) == 1 {
			n.nodes[name] = id
			break
		}
		n.Link(n.nodes[name], id, inside, 0, insideQueue)
		if n.s.Services[i].Looks > 0 {
			n.Processor(id, sim.Processor{Cores: g.Cores, Takes: stochastic.Always(0), Queue: g.Queue})
		}
		if err := n.Route(n.nodes[name], n.vips[i], sim.Group{Hops: []sim.Weighted{{Node: id}}}); err != nil {
			return err
		}
	}
	if takes > 0 || len(serves) == 1 && n.s.Services[serves[0]].Looks > 0 {
		n.Processor(n.nodes[name], sim.Processor{Cores: g.Cores, Takes: stochastic.Always(takes), Queue: g.Queue})
	}
	return nil
}

// below adds the load balancers that are servers of the given services.
func (n *site[T]) below(services []int, k *knowledge) error {
	for _, i := range services {
		for _, ref := range n.s.Services[i].Servers {
			for _, name := range n.s.find(ref) {
				g := n.s.who[name].group
				if g.Role != Balancer {
					break // the same applies to the others of that name
				}
				if err := n.balancer(g, name, k); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// front adds the part of a load balancer for one service.
func (n *site[T]) front(part, balancer string, i int, k *knowledge) (sim.Node, error) {
	s := &n.s.Services[i]
	return n.Balancer(sim.Balancer{
		Name: part, Method: s.Method, Scheduler: s.Scheduler, Servers: n.weighted(k.serversOf(balancer, i)), Serves: []sim.Node{n.vips[i]},
		Survival: s.Survival, RingSize: s.RingSize, Timeout: udpTimeout, Timeouts: sim.Timeouts{Established: s.Timeout},
		Table: sim.ConnTable{Buckets: s.Buckets, Seed: n.hash, Looks: s.Looks},
	})
}

func (n *site[T]) weighted(of []standing) []sim.Weighted {
	all := make([]sim.Weighted, len(of))
	for i, w := range of {
		all[i] = sim.Weighted{Node: n.nodes[w.name], Weight: w.weight, Draining: w.draining}
	}
	return all
}

// routes adds a router's routes to all services that it can reach.
func (n *site[T]) routes(router string, k *knowledge) error {
	g := n.s.who[router].group
	division := map[ECMP]sim.Division{Resilient: sim.Resilient, Plain: sim.Threshold, Modulo: sim.Modulo}[g.ECMP]
	for i := range n.s.Services {
		group := sim.Group{Division: division, Hops: n.hops(k.hopsOf(router, i), i), Buckets: g.Buckets}
		if err := n.Route(n.nodes[router], n.vips[i], group); err != nil {
			return err
		}
	}
	return nil
}

// hops returns load balancers as next hops of a service.
func (n *site[T]) hops(names []string, i int) []sim.Weighted {
	all := make([]sim.Weighted, len(names))
	for j, name := range names {
		all[j] = sim.Weighted{Node: n.nodes[name]}
	}
	return all
}

// join creates links and LANs.
func (n *site[T]) join() {
	t := &n.s.Topology
	queue := func(packets int) int {
		if packets == 0 {
			return 0
		}
		return packets + 1 // the simulator also counts the packet being sent
	}
	for _, l := range t.Links {
		for _, a := range n.s.find(l.Between[0]) {
			for _, b := range n.s.find(l.Between[1]) {
				n.lines[ends(a, b)] = n.Link(n.nodes[a], n.nodes[b], l.Rate, l.Delay, queue(l.Queue))
			}
		}
	}
	for _, l := range t.LANs {
		var members []string
		for _, ref := range l.Members {
			members = append(members, n.s.find(ref)...)
		}
		if l.Kind == Shared {
			var at []sim.Attached
			for _, m := range members {
				at = append(at, sim.Attached{Node: n.nodes[m], Queue: queue(l.Queue)})
			}
			n.SharedLAN(l.Rate, l.Delay, at)
			continue
		}
		var ports []sim.Port
		for _, m := range members {
			ports = append(ports, sim.Port{Node: n.nodes[m], Rate: l.Rate, Queue: queue(l.Queue)})
		}
		id, lines := n.SwitchedLAN(l.Name, l.Delay, ports)
		n.nodes[l.Name] = id
		for i, m := range members {
			n.lines[ends(l.Name, m)] = lines[i]
		}
	}
}

// find returns the members that a name refers to.
func (s *Scenario) find(ref Ref) []string {
	if m := s.who[ref.Name]; m != nil {
		return []string{ref.Name}
	}
	i := slices.IndexFunc(s.Topology.Groups, func(g Group) bool { return g.Name == ref.Name })
	return s.Topology.Groups[i].Names()
}

func (n *site[T]) kill(name string) error {
	for _, node := range n.parts(name) {
		if err := n.Kill(node); err != nil {
			return err
		}
	}
	return nil
}

func (n *site[T]) revive(name string) error {
	for _, node := range n.parts(name) {
		if err := n.Revive(node); err != nil {
			return err
		}
	}
	return nil
}

// parts returns a member's nodes, in the order of their numbers.
func (n *site[T]) parts(name string) []sim.Node {
	all := []sim.Node{n.nodes[name]}
	for _, part := range n.fronts[name] {
		if part != n.nodes[name] {
			all = append(all, part)
		}
	}
	slices.Sort(all)
	return all
}

// draw returns a distribution with the given mean.
func (t Tail) draw(mean float64) stochastic.Draw {
	switch t {
	case Exponential:
		return stochastic.Exponential(mean)
	case Pareto:
		// With exponent 1.5, from low to 10,000 times low, the mean is 2.97/0.999999
		// times low.
		low := mean / (2.97 / 0.999999)
		return stochastic.Pareto(1.5, low, 1e4*low)
	}
	return stochastic.Always(mean)
}

// load adds the clients of a load.
func (n *site[T]) load(of int, random *stochastic.Stream) {
	l := &n.s.Load[of]
	done := func(took float64) { n.watch.took(of, n.Now(), took) }
	names := n.s.find(l.From)
	vip := n.vips[slices.IndexFunc(n.s.Services, func(s Service) bool { return s.Name == l.To.Name })]
	size := stochastic.Always(0)
	if l.Answer > 0 {
		size = l.Tail.draw(l.Answer)
	}
	parts := l.replay(len(names), size, random)
	for i, name := range names {
		load, start := traffic.Replay(parts[i]), l.Start
		if l.Arrivals != Trace {
			load, start = l.of(i, len(names), size, random)
		}
		n.clients = append(n.clients, name)
		if l.Protocol == UDP {
			n.nodes[name] = n.Client(sim.Client{Name: name, To: vip, Start: start, Load: load, Done: done})
			continue
		}
		c := sim.Connections{Name: name, To: vip, Start: start, Load: load, Requests: l.Requests, Patience: l.Timeout, Retries: l.Retries, Done: done}
		if l.Retries == 0 {
			c.Retries = -1
		}
		if l.Pause > 0 {
			c.Think = stochastic.Exponential(l.Pause)
		}
		n.nodes[name] = n.Connections(c)
	}
}

// of returns the share of a load for one of several clients, and when it begins.
func (l *Load) of(i, clients int, size stochastic.Draw, random *stochastic.Stream) (traffic.Load, float64) {
	every := float64(clients) / l.Rate
	if l.Arrivals == Steady {
		start := l.Start + every*float64(i)/float64(clients)
		return &arrivals{wait: stochastic.Always(every), size: size, left: l.End - start}, start
	}
	wait := stochastic.Exponential(every)
	start := l.Start + wait(random)
	return &arrivals{wait: wait, size: size, left: l.End - start}, start
}

// arrivals is the load of one client.
type arrivals struct {
	wait stochastic.Draw
	size stochastic.Draw
	left float64 // seconds until the load ends
}

// Next implements sim.Load.
func (a *arrivals) Next(_ int, random *stochastic.Stream) traffic.Request {
	r := traffic.Request{Wait: -1, Replies: 1, Size: int(a.size(random))}
	wait := a.wait(random)
	if a.left -= wait; a.left > 0 {
		r.Wait = wait
	}
	return r
}
