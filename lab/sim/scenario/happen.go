package scenario

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/lab/sim"
)

// leaving is how long a node that has announced its departure still serves packets in
// flight, in seconds.
const leaving = 0.1

// happen schedules the events, and the reactions of the other nodes.
func (n *site[T]) happen(k *knowledge) {
	there := map[string]bool{} // drained, and therefore still present
	for i := range n.s.Events {
		e := &n.s.Events[i]
		if len(e.What) == 2 {
			n.cut(e)
			continue
		}
		for _, name := range n.s.subjects(e) {
			switch e.Action {
			case Dies:
				n.Do(e.At, func() error { return n.kill(name) })
			case Leaves:
				n.Do(min(e.At+leaving, n.s.next(i, name)), func() error { return n.kill(name) })
			case Joins:
				if !there[name] {
					n.Do(e.At, func() error { return n.revive(name) })
				}
			}
			there[name] = e.Action == Drains
		}
	}
	n.learn(k)
}

func (n *site[T]) cut(e *Event) {
	for _, key := range n.s.cuts(e) {
		line := n.lines[key]
		n.Do(e.At, func() error {
			if e.Action == Cuts {
				return n.Cut(line)
			}
			return n.Restore(line)
		})
	}
}

// learn updates routers and load balancers whenever their knowledge changes.
func (n *site[T]) learn(k *knowledge) {
	ways := slices.ContainsFunc(n.s.Events, func(e Event) bool { return e.Action == Cuts })
	last := n.decide(k)
	lessons := n.s.lessons()
	for i := 0; i < len(lessons); {
		at := lessons[i].at
		for ; i < len(lessons) && lessons[i].at == at; i++ {
			lessons[i].learn(k)
		}
		if at >= n.s.Duration {
			break
		}
		now := n.decide(k)
		if ways {
			n.Do(at, n.Reroute)
		}
		for _, key := range slices.SortedFunc(maps.Keys(now), decider.compare) {
			if slices.Equal(now[key], last[key]) {
				continue
			}
			n.Do(at, func() error { return n.apply(key, now[key]) })
		}
		last = now
	}
}

// decider is a router or a load balancer, with one of its services.
type decider struct {
	name    string
	service int
}

func (d decider) compare(o decider) int {
	return cmp.Or(cmp.Compare(d.name, o.name), cmp.Compare(d.service, o.service))
}

// decide returns the next hops of all routers and the servers of all load balancers.
func (n *site[T]) decide(k *knowledge) map[decider][]standing {
	all := map[decider][]standing{}
	for i := range n.s.Services {
		for _, r := range n.routers {
			var hops []standing
			for _, name := range k.hopsOf(r, i) {
				hops = append(hops, standing{name: name})
			}
			all[decider{r, i}] = hops
		}
	}
	for b, services := range k.services {
		for _, i := range services {
			all[decider{b, i}] = k.serversOf(b, i)
		}
	}
	return all
}

func (n *site[T]) apply(who decider, what []standing) error {
	if front, ok := n.fronts[who.name][who.service]; ok {
		return n.SetServers(front, n.weighted(what))
	}
	hops := make([]sim.Weighted, len(what))
	for i, h := range what {
		hops[i] = sim.Weighted{Node: n.nodes[h.name]}
	}
	return n.SetHops(n.nodes[who.name], n.vips[who.service], hops)
}
