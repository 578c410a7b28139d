package sim

import "fmt"

// Do makes a change at a moment, in seconds, which must not be past: whatever the
// methods of the network do that say so (SetServers, SetHops, Kill, Revive, Cut,
// Mend, Reroute). An error ends the run.
func (n *Net[T]) Do(at float64, what func() error) {
	n.changes = append(n.changes, what)
	n.q.at(max(n.q.now, n.span(at)), n.q.reserve(), event{kind: change, what: int32(len(n.changes) - 1)})
}

// Kill takes a server, a balancer, a router or a switch away, from now on: what it
// has, and what comes to it, is lost, and it forgets all connections. Nobody is
// told: whoever sends to it goes on.
func (n *Net[T]) Kill(of Node) error {
	k := &n.nodes[of]
	if k.role == clientNode || k.role == vipNode {
		return fmt.Errorf("%s: only what serves or forwards can die", k.name)
	}
	k.dead, k.special = true, true
	for i := range n.links {
		if n.links[i].from == of {
			n.flush(&n.links[i], dead)
		}
	}
	for _, d := range k.doors {
		if d.station != none {
			l, i, _ := n.station(d.station)
			n.loseAll(&l.backlogs[i].fifo, dead, of)
		}
	}
	if s := k.server; s != nil {
		s.busy, s.known = 0, nil
		s.turn++
		n.loseAll(&s.waiting, dead, of)
	}
	if c := k.processor; c != nil {
		c.busy = 0
		c.turn++
		n.loseAll(&c.waiting, dead, of)
	}
	if b := k.balancer; b != nil {
		b.forgetIf(func(uint32) bool { return true })
	}
	return nil
}

// Revive brings back who was killed, as one that has just started.
func (n *Net[T]) Revive(of Node) error {
	k := &n.nodes[of]
	if !k.dead {
		return fmt.Errorf("%s: is alive", k.name)
	}
	k.dead = false
	if b := k.balancer; b != nil {
		b.slots, b.members = nil, nil
		return n.setServers(b, b.Servers)
	}
	return nil
}

// Cut takes a line away, in both directions, from now on: what waits for it, and
// what is sent by it, is lost; what is on its way arrives.
func (n *Net[T]) Cut(of Line) error {
	if n.links[2*of].cut {
		return fmt.Errorf("line %d: is cut already", of)
	}
	for i := 2 * of; i < 2*of+2; i++ {
		l := &n.links[i]
		n.flush(l, cut)
		l.cut, l.uncut, l.limit = true, l.limit, 0
		l.free = 1 << 62
	}
	return nil
}

// Mend brings a line back that was cut.
func (n *Net[T]) Mend(of Line) error {
	if !n.links[2*of].cut {
		return fmt.Errorf("line %d: is not cut", of)
	}
	for i := 2 * of; i < 2*of+2; i++ {
		l := &n.links[i]
		l.cut, l.limit, l.free, l.ticket = false, l.uncut, n.q.now, n.q.turn
	}
	return nil
}

// flush loses what waits for a link.
func (n *Net[T]) flush(l *link[T], why Cause) { n.loseAll(&l.queue, why, l.from) }

func (n *Net[T]) loseAll(f *fifo, why Cause, at Node) {
	for f.len() > 0 {
		n.lose(why, at, f.pop())
	}
}

// Reroute gives all nodes the shortest ways that there are now, without lines that
// are cut and nodes that are dead: what routing does once it has converged. Who
// cannot be reached any more loses what is sent to it, where that is known.
func (n *Net[T]) Reroute() error {
	seen := make([]uint32, len(n.nodes))
	for i := range n.nodes {
		n.routeFrom(Node(i), seen)
	}
	return nil
}
