package sim

import "github.com/fairlead/fairlead/core/ring"

// Timeouts contains how long a load balancer tracks a connection after its last packet,
// by state, in seconds. The defaults for 0 are those of IPVS: 60, 900 and 120.
type Timeouts struct{ SYN, Established, FIN float64 }

// state is the state of a connection in the view of a load balancer.
type state uint8

const (
	stateless state = iota // for datagrams
	synSeen
	established
	finSeen
	states
)

// stateOf is the state to which each type of packet moves a connection.
var stateOf = [...]state{datagram: stateless, syn: synSeen, request: established, more: established, fin: finSeen}

// table is a load balancer's flow table.
type table[T Time] struct {
	by       []int32 // by flow: the index in entries plus 1, or 0 if not tracked
	entries  []remembered[T]
	free     []int32
	timeouts [states]T // 0: unlimited
	lanes    [states]int32
}

// remembered is a tracked flow.
type remembered[T Time] struct {
	flow  int32
	id    ring.ID
	last  T
	back  Node // the previous load balancer, to which replies go; none: the client
	turn  uint32
	state state
}

func (n *Net[T]) newTable(t *table[T], c Balancer) {
	or := func(seconds, otherwise float64) float64 {
		if seconds == 0 {
			return otherwise
		}
		return seconds
	}
	for s, seconds := range [states]float64{c.Timeout, or(c.Timeouts.SYN, 60), or(c.Timeouts.Established, 900), or(c.Timeouts.FIN, 120)} {
		if t.timeouts[s] = n.span(seconds); t.timeouts[s] > 0 {
			t.lanes[s] = n.q.Lane(t.timeouts[s])
		}
	}
}

// remembered returns the server of a packet's flow, which must be in the table. For a
// connection that is opened again after its end, it removes the old entry and returns 0.
func (n *Net[T]) remembered(at Node, b *balancer[T], p *packet[T]) ring.ID {
	i := b.by[p.flow] - 1
	c := &b.entries[i]
	if p.carries != datagram {
		s := stateOf[p.carries]
		if s == synSeen && c.state == finSeen {
			b.forget(i)
			return 0
		}
		n.turnTo(at, &b.table, i, s)
	}
	c.last = n.q.Now
	return c.id
}

// turnTo moves a connection to another state, which may expire sooner.
func (n *Net[T]) turnTo(at Node, t *table[T], i int32, to state) {
	c := &t.entries[i]
	if to <= c.state {
		return
	}
	if t.timeouts[to] < t.timeouts[c.state] {
		c.turn++
		n.q.After(t.lanes[to], event{kind: expiry, who: at, what: i, turn: c.turn})
	}
	c.state = to
}

// remember adds a flow with its server.
func (n *Net[T]) remember(at Node, b *balancer[T], p *packet[T], id ring.ID) {
	t := &b.table
	c := remembered[T]{flow: p.flow, id: id, last: n.q.Now, back: p.via, state: stateOf[p.carries]}
	i := int32(len(t.entries))
	if last := len(t.free) - 1; last >= 0 {
		i, t.free = t.free[last], t.free[:last]
		c.turn = t.entries[i].turn + 1
		t.entries[i] = c
	} else {
		t.entries = append(t.entries, c)
	}
	b.state[id-1].Conns++
	if !b.PerPacket {
		if len(t.by) < len(n.flows) {
			t.by = append(t.by, make([]int32, len(n.flows)-len(t.by))...)
		}
		t.by[p.flow] = i + 1
	}
	if b.chains != nil {
		b.chains.link(i, n.bucketOf(b, p.flow))
	}
	if t.timeouts[c.state] > 0 {
		n.q.After(t.lanes[c.state], event{kind: expiry, who: at, what: i, turn: c.turn})
	}
}

// expire removes a flow, unless it was used meanwhile.
func (n *Net[T]) expire(at Node, i int32, turn uint32) {
	b := n.nodes[at].balancer
	c := &b.entries[i]
	if c.turn != turn {
		return
	}
	if end := c.last + b.timeouts[c.state]; end > n.q.Now {
		n.q.At(end, n.q.Reserve(), event{kind: expiry, who: at, what: i, turn: turn})
		return
	}
	b.forget(i)
}

// forget removes a flow.
func (b *balancer[T]) forget(i int32) {
	c := &b.entries[i]
	b.state[c.id-1].Conns--
	if !b.PerPacket {
		b.by[c.flow] = 0
	}
	if b.chains != nil {
		b.chains.unlink(i)
	}
	c.id = 0
	c.turn++
	b.free = append(b.free, i)
}

// forgetIf removes the flows of some servers.
func (b *balancer[T]) forgetIf(gone func(ring.ID) bool) {
	for i := range b.entries {
		if id := b.entries[i].id; id != 0 && gone(id) {
			b.forget(int32(i))
		}
	}
}

// bringBack sends a reply back to where its request came from.
func (n *Net[T]) bringBack(at Node, p int32) {
	b, packet := n.nodes[at].balancer, &n.pool.all[p]
	if b.chains != nil {
		n.lookUp(b, packet.flow)
	}
	if int(packet.flow) >= len(b.by) || b.by[packet.flow] == 0 {
		n.lose(unserved, at, p)
		return
	}
	c := &b.entries[b.by[packet.flow]-1]
	c.last = n.q.Now
	if packet.to = c.back; c.back == none {
		packet.to = packet.client
	}
	n.forward(at, p)
}
