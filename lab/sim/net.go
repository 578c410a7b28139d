// Package sim simulates networks with virtual servers, packet by packet: clients,
// lines, LANs with collisions, load balancers, which run the project's own
// schedulers, and servers. It knows no figure, no file and no wall clock: the
// same seed gives the same result on any machine.
package sim

import "math"

// Seconds is the clock of ns-2: its sums are rounded as there, and the rounding
// decides what happens first.
type Seconds float64

// Nanoseconds is the exact clock.
type Nanoseconds int64

// Config is what a whole network has in common.
type Config struct {
	Seed uint32 // 0 as 1
	// PacketBytes of requests and replies; 0: 500.
	PacketBytes int
	// Bin is the span, in seconds, for which results are counted apart; 0: 1.
	Bin float64
}

// Node is the number of a node, from 0 in the order in which they were added.
type Node = int32

// none stands for no packet, no node, no link.
const none = -1

// Net is a network, and what happens in it. Build it whole, then Run it.
type Net[T Time] struct {
	config   Config
	second   float64 // in T
	rounding T       // what sums of times may be wrong by
	q        queue[T]
	random   *Stream
	pool     pool[T]
	nodes    []node[T]
	flows    []flow
	conns    []conn[T] // by flow; of those of Connections
	links    []link[T]
	lines    []line[T]
	lans     []lan[T]
	routed   bool
	binEnd   T
	changes  []func() error
	failed   error           // of a change
	ages     map[member]*age // what is known of the balancers' servers
	bins     [][]Counts      // totals of all nodes at the end of each bin
}

// New gives an empty network.
func New[T Time](c Config) *Net[T] {
	if c.PacketBytes == 0 {
		c.PacketBytes = 500
	}
	if c.Bin == 0 {
		c.Bin = 1
	}
	n := &Net[T]{config: c, second: 1e9, random: NewStream(c.Seed)}
	if one := T(1); one/2 != 0 {
		n.second, n.rounding = 1, ns2Rounding[T]()
	}
	n.binEnd = n.span(c.Bin)
	return n
}

// ns2Rounding is 1e-15 s: ns-2 takes a timer with less than that left for ended.
func ns2Rounding[T Time]() T {
	x := 1e-15
	return T(x)
}

// span gives so many seconds.
func (n *Net[T]) span(seconds float64) T {
	if n.second == 1 {
		return T(seconds)
	}
	return T(math.Round(seconds * n.second))
}

// bits gives the time of bits at a rate.
func (n *Net[T]) bits(count int, rate float64) T { return n.span(float64(count) / rate) }

// Now is the simulated time, in seconds.
func (n *Net[T]) Now() float64 { return float64(n.q.now) / n.second }

// kind is what an event is.
type kind uint8

const (
	clientSends kind = iota
	arrival          // of packet what at node who
	enqueue          // of packet what at station who, after the link layer
	lineFree
	firstBit
	sent
	received
	gapEnd
	retry
	served // packet what by server who
	expiry // of connection what at balancer who
	processed
	userComes
	again      // the time of connection who
	bucketsDue // of the route to what at router who
	change
)

// Run goes on until a moment, in seconds from the beginning; it may be called
// again with a later one.
func (n *Net[T]) Run(until float64) error {
	if n.failed == nil && !n.routed {
		n.failed = n.route()
		n.routed = true
	}
	if n.failed != nil {
		return n.failed
	}
	end := n.span(until)
	for {
		e, ok := n.q.next(end)
		if !ok {
			break
		}
		if n.q.now >= n.binEnd {
			n.closeBins(n.q.now)
		}
		switch e.kind {
		case clientSends:
			n.clientSends(e.who)
		case arrival:
			n.arrive(e.who, e.what)
		case enqueue:
			n.enqueue(e.who, e.what)
		case lineFree:
			n.lineFree(e.who)
		case firstBit:
			n.firstBit(e.who, e.what)
		case sent:
			n.sent(e.who, e.turn)
		case received:
			n.received(e.who, e.what, e.turn)
		case gapEnd:
			n.gapEnd(e.who, e.turn)
		case retry:
			n.retried(e.who)
		case served:
			n.served(e.who, e.what, e.turn)
		case expiry:
			n.expire(e.who, e.what, e.turn)
		default:
			n.happenToo(e)
		}
	}
	if n.failed == nil {
		n.closeBins(end)
	}
	return n.failed
}

// happenToo is for what the paper's networks have not.
func (n *Net[T]) happenToo(e event) {
	switch e.kind {
	case processed:
		n.processed(e.who, e.what, e.turn)
	case userComes:
		n.userComes(e.who)
	case again:
		n.again(e.who, e.turn)
	case bucketsDue:
		n.bucketsDue(e.who, e.what, e.turn)
	case change:
		if n.failed = n.changes[e.what](); n.failed != nil {
			n.q.clear() // nothing more happens
		}
	}
}
