package sim

import (
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
	"math"
)

// Connections represents users behind one node who open TCP-like connections: SYN,
// requests with their replies, FIN. Each packet waits for its reply. Without one, it is
// sent again, with a timeout that doubles each time. A connection breaks when a server
// that does not know it resets it.
type Connections struct {
	Name string
	To   Node // the load balancer, or a VIP
	// Start is when the load begins, in seconds. Load determines when connections are
	// opened, and how many bytes each request asks for.
	Start float64
	Load  traffic.Load
	// Requests is the number of sequential requests per connection; 0 means 1.
	Requests int
	// Think draws the pause between a reply and the next request, in seconds; nil means
	// none.
	Think stochastic.Draw
	// Window is the number of packets of a reply that arrive before the next ones are
	// requested; 0 means 10, as in RFC 6928.
	Window int
	// Patience is the initial retransmission timeout in seconds; 0 means 1, as in RFC
	// 6298.
	Patience float64
	// Retries is how often a packet is retransmitted before the connection is given up; 0
	// means 6, as in Linux, and negative values mean never.
	Retries int
	// Done is called for each complete reply, with the seconds since its request (since
	// the SYN, for the first one). It may be nil.
	Done func(seconds float64)
}

const (
	controlBytes = 40 // of a packet without data: two headers
	timeWait     = 60 // seconds before a port is reused (Linux' TCP_TIMEWAIT_LEN)
)

type users[T Time] struct {
	Connections
	random   *stochastic.Stream
	resting  fifo    // flows whose connections are closed
	patience []int32 // lanes, by number of retransmissions
	timeWait T
}

// phase is the state of a connection.
type phase uint8

const (
	over phase = iota
	opening
	asking
	thinking
	closing
)

// conn is a connection, at the index of its flow.
type conn[T Time] struct {
	since    T // time of the SYN, of the pending request, or of the end
	exchange int32
	retries  int32
	left     int32 // remaining requests
	size     int32 // bytes requested by each
	total    int32 // packets of the reply
	next     int32 // the next packet expected
	round    int32 // the end of the packets requested so far
	turn     uint32
	phase    phase
	// What servers know of it: which server has started which exchange, and the last
	// exchange that was answered.
	server          Node
	begun, answered int32
}

// Connections adds users.
func (n *Net[T]) Connections(c Connections) Node {
	id, k := n.add(c.Name, clientNode)
	c.Requests = max(c.Requests, 1)
	if c.Window = min(c.Window, math.MaxUint16); c.Window == 0 {
		c.Window = 10
	}
	if c.Patience == 0 {
		c.Patience = 1
	}
	if c.Retries == 0 {
		c.Retries = 6
	}
	k.target, k.done, k.special = c.To, c.Done, true
	k.users = &users[T]{Connections: c, random: n.newStream(uint32(id)), timeWait: n.span(timeWait)}
	for i := range max(0, c.Retries) + 1 {
		k.users.patience = append(k.users.patience, n.q.Lane(n.span(c.Patience*float64(uint64(1)<<min(i, 30)))))
	}
	k.load = c.Load
	if lead := n.lead(c.Load, k.users.random); lead >= 0 {
		n.q.At(n.span(c.Start+lead), n.q.Reserve(), event{kind: userComes, who: id})
	}
	return id
}

// newStream returns a separate stream of random numbers, which is not affected by others.
func (n *Net[T]) newStream(of uint32) *stochastic.Stream {
	return stochastic.StreamOf(n.config.Seed, of)
}

// userComes opens a connection, and schedules the next one.
func (n *Net[T]) userComes(id Node) {
	k := &n.nodes[id]
	r := k.load.Next(int(k.number), k.users.random)
	k.number++
	f := n.freePort(id)
	c := &n.conns[f]
	c.phase, c.left, c.size, c.since = opening, int32(k.users.Requests), bytes(r.Size), n.q.Now
	c.total = int32(max(1, r.Replies))
	if r.Size > 0 {
		c.total = int32(max(1, (r.Size+n.config.PacketBytes-1)/n.config.PacketBytes))
	}
	k.Opened++
	n.exchange(f, c)
	if r.Wait >= 0 {
		n.q.At(n.q.Now+n.span(r.Wait), n.q.Reserve(), event{kind: userComes, who: id})
	}
}

// freePort returns a flow whose last connection ended long enough ago, or a new one.
func (n *Net[T]) freePort(id Node) int32 {
	u := n.nodes[id].users
	if u.resting.len() > 0 {
		if f := u.resting.first(); n.conns[f].since+u.timeWait <= n.q.Now {
			return u.resting.pop()
		}
	}
	k := &n.nodes[id]
	f := n.flowOf(id, len(k.flows))
	for len(n.conns) <= int(f) {
		n.conns = append(n.conns, conn[T]{server: none})
	}
	return f
}

// exchange sends the next request and waits for the reply.
func (n *Net[T]) exchange(f int32, c *conn[T]) {
	c.exchange++
	c.retries, c.next, c.round = 0, 0, 0
	n.ask(f, c)
}

// ask sends a packet according to the connection's phase, and sets the retransmission
// timer.
func (n *Net[T]) ask(f int32, c *conn[T]) {
	id := n.flows[f].client
	k := &n.nodes[id]
	p := n.pool.take()
	n.pool.made++
	k.Sent++
	q := packet[T]{born: n.q.Now, client: id, to: k.target, flow: f, size: controlBytes, replies: 1, via: none, held: 1}
	e := extra{number: c.exchange, vip: none}
	switch c.phase {
	case opening:
		q.carries = syn
	case closing:
		q.carries = fin
	default:
		q.carries, e.index, e.asks = more, c.next, c.size
		if c.next == 0 {
			q.carries, q.size = request, int32(n.config.PacketBytes)
		}
		c.round = min(c.total, c.next+int32(k.users.Window))
		q.replies = uint16(c.round - c.next)
	}
	n.pool.all[p] = q
	*n.pool.extra(p) = e
	c.turn++
	n.q.After(k.users.patience[c.retries], event{kind: again, who: f, turn: c.turn})
	n.forward(id, p)
}

// again retransmits a packet that was not answered in time.
func (n *Net[T]) again(f int32, turn uint32) {
	c := &n.conns[f]
	if c.turn != turn {
		return
	}
	k := &n.nodes[n.flows[f].client]
	if c.phase == thinking {
		c.phase, c.since = asking, n.q.Now
		n.exchange(f, c)
		return
	}
	if int(c.retries)+1 >= len(k.users.patience) {
		k.TimedOut++
		n.ended(f, c, k)
		return
	}
	c.retries++
	k.Retried++
	n.ask(f, c)
}

// answered handles a packet from a server.
func (n *Net[T]) answered(id int32) {
	p, e := &n.pool.all[id], n.pool.extra(id)
	f, c := p.flow, &n.conns[p.flow]
	k := &n.nodes[p.client]
	switch {
	case c.phase == over || c.phase == thinking || e.number != c.exchange: // a late reply
	case p.carries == reset && c.phase == closing:
		k.Closed++
		n.ended(f, c, k)
	case p.carries == reset:
		k.Broken++
		n.ended(f, c, k)
	case c.phase == opening:
		c.phase = asking
		n.exchange(f, c)
	case c.phase == closing:
		k.Closed++
		n.ended(f, c, k)
	case e.index == c.next:
		c.next++
		n.part(f, c, k)
	}
}

// part handles the next packet of a reply.
func (n *Net[T]) part(f int32, c *conn[T], k *node[T]) {
	switch {
	case c.next >= c.total:
		seconds := float64(n.q.Now-c.since) / n.second
		k.Answers++
		k.Delay += seconds
		if k.done != nil {
			k.done(seconds)
		}
		n.proceed(f, c, k)
	case c.next == c.round:
		c.retries = 0
		n.ask(f, c)
	}
}

// proceed continues after a complete reply.
func (n *Net[T]) proceed(f int32, c *conn[T], k *node[T]) {
	c.left--
	switch {
	case c.left == 0:
		c.phase = closing
		n.exchange(f, c)
	case k.users.Think != nil:
		c.phase = thinking
		c.turn++
		pause := n.span(k.users.Think(k.users.random))
		n.q.At(n.q.Now+pause, n.q.Reserve(), event{kind: again, who: f, turn: c.turn})
	default:
		c.since = n.q.Now
		n.exchange(f, c)
	}
}

func (n *Net[T]) ended(f int32, c *conn[T], k *node[T]) {
	c.phase, c.since = over, n.q.Now
	c.turn++
	k.users.resting.push(f)
}
