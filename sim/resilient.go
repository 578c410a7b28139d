package sim

// Resilient groups are those of Linux (net/ipv4/nexthop.c): a table of buckets,
// each with its hop. When the hops change, each gets a number of buckets by its
// weight. Buckets of hops that have gone move at once; those of hops that have too
// many move when they are idle, or when the shares have been uneven for too long.

type bucket[T Time] struct {
	hop            Node
	used, migrated T
}

// share is how many buckets a hop has, and is to have.
type share struct {
	node        Node
	has, wanted int
}

// resilience are a group's timers.
type resilience[T Time] struct {
	idle, unbalanced T
	since            T // that shares are uneven
	uneven           bool
	turn             uint32 // of the next look
}

// rebalance counts anew how many buckets each hop is to have, and moves those that
// may move.
func (n *Net[T]) rebalance(at, vip Node, g *group[T]) {
	has := map[Node]int{}
	for _, b := range g.table {
		has[b.hop]++
	}
	g.shares = g.shares[:0]
	before, uneven := uint64(0), false
	for i, end := range g.bounds(uint64(len(g.table))) {
		s := share{g.Hops[i].Node, has[g.Hops[i].Node], int(end - before)}
		g.shares, before = append(g.shares, s), end
		uneven = uneven || s.has < s.wanted
	}
	if uneven && !g.timers.uneven {
		g.timers.since = n.q.now
	}
	g.timers.uneven = uneven
	n.upkeep(at, vip, g)
}

// upkeep moves the buckets that may move, and comes again when the next one may.
func (n *Net[T]) upkeep(at, vip Node, g *group[T]) {
	t := &g.timers
	t.turn++
	var due T
	pending := false
	for i := range g.table {
		b := &g.table[i]
		from, to := g.share(b.hop), g.lacking()
		if from != nil && (from.has <= from.wanted || to == nil) {
			continue
		}
		if from != nil {
			when := t.idlePoint(b, n.q.now)
			if t.unbalanced > 0 {
				when = min(when, t.since+t.unbalanced)
			}
			if when > n.q.now {
				if !pending || when < due {
					due, pending = when, true
				}
				continue
			}
		}
		b.hop = none
		if to != nil {
			b.hop = to.node
			to.has++
		}
		if from != nil {
			from.has--
		}
		b.used, b.migrated = n.q.now, n.q.now
	}
	t.uneven = g.lacking() != nil
	if pending && t.uneven {
		n.q.at(due, n.q.reserve(), event{kind: bucketsDue, who: at, what: vip, turn: t.turn})
	}
}

// idlePoint is when a bucket is idle; one that was not used since it moved is now.
func (t *resilience[T]) idlePoint(b *bucket[T], now T) T {
	if b.used == b.migrated {
		return now
	}
	return b.used + t.idle
}

// share gives a hop's, or nil for one that has gone.
func (g *group[T]) share(of Node) *share {
	for i := range g.shares {
		if g.shares[i].node == of {
			return &g.shares[i]
		}
	}
	return nil
}

// lacking gives the first hop that has fewer buckets than it is to have.
func (g *group[T]) lacking() *share {
	for i := range g.shares {
		if g.shares[i].has < g.shares[i].wanted {
			return &g.shares[i]
		}
	}
	return nil
}

// bucketsDue is when a bucket may move.
func (n *Net[T]) bucketsDue(at, vip Node, turn uint32) {
	if g := n.group(at, vip); g != nil && g.timers.turn == turn {
		n.upkeep(at, vip, g)
	}
}
