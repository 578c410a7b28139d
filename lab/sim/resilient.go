package sim

import "github.com/fairlead/fairlead/lab/sim/resilient"

// bucket is a bucket of a resilient group, with its hop. Groups work like those of Linux
// (net/ipv4/nexthop.c). Buckets of removed hops move immediately. Excess buckets of other
// hops move when they are idle, or when the shares have been uneven for too long.

type bucket[T Time] struct {
	hop            Node
	used, migrated T
}

// resilience contains a group's timers.
type resilience[T Time] struct {
	idle, unbalanced T
	since            T // the time since which shares are uneven
	uneven           bool
	turn             uint32 // of the next check
}

// rebalance recalculates the number of buckets for each hop, and moves those that may
// move.
func (n *Net[T]) rebalance(at, vip Node, g *group[T]) {
	hops := make([]Node, len(g.Hops))
	for i, h := range g.Hops {
		hops[i] = h.Node
	}
	g.shares = resilient.NewShares(hops, g.weights(), len(g.table), func(i int) Node { return g.table[i].hop })
	uneven := g.shares.Uneven()
	if uneven && !g.timers.uneven {
		g.timers.since = n.q.Now
	}
	g.timers.uneven = uneven
	n.upkeep(at, vip, g)
}

// upkeep moves the buckets that may move, and schedules a check for when the next one
// may.
func (n *Net[T]) upkeep(at, vip Node, g *group[T]) {
	t := &g.timers
	t.turn++
	var due T
	pending := false
	for i := range g.table {
		b := &g.table[i]
		stays, gone := g.shares.Stays(b.hop)
		if stays {
			continue
		}
		if !gone {
			when := t.idlePoint(b, n.q.Now)
			if t.unbalanced > 0 {
				when = min(when, t.since+t.unbalanced)
			}
			if when > n.q.Now {
				if !pending || when < due {
					due, pending = when, true
				}
				continue
			}
		}
		b.hop = g.shares.Move(b.hop, none)
		b.used, b.migrated = n.q.Now, n.q.Now
	}
	t.uneven = g.shares.Uneven()
	if pending && t.uneven {
		n.q.At(due, n.q.Reserve(), event{kind: bucketsDue, who: at, what: vip, turn: t.turn})
	}
}

// idlePoint returns when a bucket becomes idle. A bucket that was not used since it moved
// is idle now.
func (t *resilience[T]) idlePoint(b *bucket[T], now T) T {
	if b.used == b.migrated {
		return now
	}
	return b.used + t.idle
}

// bucketsDue handles the time at which a bucket may move.
func (n *Net[T]) bucketsDue(at, vip Node, turn uint32) {
	if g := n.group(at, vip); g != nil && g.timers.turn == turn {
		n.upkeep(at, vip, g)
	}
}
