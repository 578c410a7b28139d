package sim

import "fmt"

// Do schedules a change at the given time in seconds, which must not be in the past. The
// change may call those methods of the network that change it: SetServers, SetHops, Kill,
// Revive, Cut, Restore, Reroute. An error ends the run.
func (n *Net[T]) Do(at float64, what func() error) {
	n.changes = append(n.changes, what)
	n.q.At(max(n.q.Now, n.span(at)), n.q.Reserve(), event{kind: change, what: int32(len(n.changes) - 1)})
}

// Kill fails a server, a load balancer, a router or a switch from now on. The packets
// that it has or receives are lost, and it forgets all connections. Other nodes are not
// notified and continue to send to it.
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

// Revive restarts a failed node, without its former state.
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

// Cut cuts a line in both directions from now on. Queued packets and packets sent later
// are lost. Packets in flight arrive.
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

// Restore restores a line that was cut.
func (n *Net[T]) Restore(of Line) error {
	if !n.links[2*of].cut {
		return fmt.Errorf("line %d: is not cut", of)
	}
	for i := 2 * of; i < 2*of+2; i++ {
		l := &n.links[i]
		l.cut, l.limit, l.free, l.ticket = false, l.uncut, n.q.Now, n.q.Turn
	}
	return nil
}

// flush drops the packets queued for a link.
func (n *Net[T]) flush(l *link[T], why Cause) { n.loseAll(&l.queue, why, l.from) }

func (n *Net[T]) loseAll(f *fifo, why Cause, at Node) {
	for f.len() > 0 {
		n.lose(why, at, f.pop())
	}
}

// Reroute computes the shortest paths of all nodes, without lines that are cut and nodes
// that are dead, as routing does once it has converged. Packets to unreachable nodes are
// lost where the path is missing.
func (n *Net[T]) Reroute() error {
	seen := make([]uint32, len(n.nodes))
	for i := range n.nodes {
		n.routeFrom(Node(i), seen)
	}
	return nil
}
