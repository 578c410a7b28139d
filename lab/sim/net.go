// Package sim simulates networks with virtual servers, packet by packet: clients, lines,
// LANs with collisions, servers, and load balancers, which run the project's own
// schedulers. It does not use figures, files or the wall clock. The same seed gives the
// same result on any machine.
package sim

import (
	"math"

	"github.com/fairlead/fairlead/lab/sim/eventqueue"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
)

// Time is a point in time or a duration in simulated time.
type Time = eventqueue.Time

// Seconds is the clock of ns-2. Sums are rounded as in ns-2, and rounding determines the
// order of events.
type Seconds float64

// Nanoseconds is the exact clock.
type Nanoseconds int64

// Config contains the settings of a whole network.
type Config struct {
	Seed uint32 // 0 means 1
	// PacketBytes is the size of requests and replies; 0 means 500.
	PacketBytes int
	// Bin is the interval, in seconds, for which results are counted separately; 0 means
	// 1.
	Bin float64
}

// Node is the number of a node, from 0, in the order in which nodes were added.
type Node = int32

// none means no packet, no node or no link.
const none = -1

// Net is a network and its state. Build it completely, and then Run it.
type Net[T Time] struct {
	config   Config
	second   float64 // one second in units of T
	rounding T       // the maximum rounding error of sums of times
	q        eventqueue.Queue[T, event]
	random   *stochastic.Stream
	pool     pool[T]
	nodes    []node[T]
	flows    []flow
	conns    []conn[T] // by flow, for flows of Connections
	links    []link[T]
	lines    []line[T]
	lans     []lan[T]
	routed   bool
	binEnd   T
	changes  []func() error
	failed   error           // the error of a change
	ages     map[member]*age // timestamps of the load balancers' servers
	bins     [][]Counts      // totals of all nodes at the end of each bin
}

// New returns an empty network.
func New[T Time](c Config) *Net[T] {
	if c.PacketBytes == 0 {
		c.PacketBytes = 500
	}
	if c.Bin == 0 {
		c.Bin = 1
	}
	n := &Net[T]{config: c, second: 1e9, random: stochastic.NewStream(c.Seed)}
	if one := T(1); one/2 != 0 {
		n.second, n.rounding = 1, ns2Rounding[T]()
	}
	n.binEnd = n.span(c.Bin)
	return n
}

// ns2Rounding is 1e-15 s. ns-2 considers a timer with less time left as expired.
func ns2Rounding[T Time]() T {
	x := 1e-15
	return T(x)
}

// span converts seconds to T.
func (n *Net[T]) span(seconds float64) T {
	if n.second == 1 {
		return T(seconds)
	}
	return T(math.Round(seconds * n.second))
}

// bits returns the transmission time of bits at a rate.
func (n *Net[T]) bits(count int, rate float64) T { return n.span(float64(count) / rate) }

// Now returns the simulated time, in seconds.
func (n *Net[T]) Now() float64 { return float64(n.q.Now) / n.second }

// kind is the kind of an event.
type kind uint8

const (
	clientSends kind = iota
	arrival          // packet what arrives at node who
	enqueue          // packet what arrives at station who, after the link layer
	lineFree
	firstBit
	sent
	received
	gapEnd
	retry
	served // packet what was served by server who
	expiry // connection what at load balancer who expires
	processed
	userComes
	again      // the timer of connection who
	bucketsDue // buckets of the route to what at router who are due
	change
)

// event is a scheduled event. The meaning of who, what and turn depends on its kind.
type event struct {
	kind      kind
	who, what int32
	turn      uint32
}

// Run runs until the given time, in seconds from the beginning. It may be called again
// with a later time.
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
		e, ok := n.q.Next(end)
		if !ok {
			break
		}
		if n.q.Now >= n.binEnd {
			n.closeBins(n.q.Now)
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

// happenToo handles the events that do not occur in the paper's networks.
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
			n.q.Clear() // stop the run
		}
	}
}
