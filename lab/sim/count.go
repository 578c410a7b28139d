package sim

import "math"

// Cause is the reason why a packet was lost, or a frame not received.
type Cause uint8

// Causes of losses.
const (
	queueFull Cause = iota // the queue of a link, an interface or a server is full
	givenUp                // a frame had the maximum number of collisions
	silent                 // the start of the frame came in an interframe gap of its receiver
	collided               // another frame arrived while it was being received
	dead                   // it came to a dead node, or was there when the node died
	cut                    // the line that it was to take is cut
	unserved               // no route, no server accepts it, or a reply to an unknown connection
	causes
)

// Counts contains the counters of a node since the beginning, or in one bin.
type Counts struct {
	// Sent counts requests of a client, or replies of a server. Got counts what arrived:
	// replies at a client, packets at a load balancer, requests at a server.
	Sent, Got uint64
	// Delay is the sum, in seconds, of the times from request to reply of the replies in
	// Got. With connections, it counts only complete replies.
	Delay float64
	// Dropped counts packets lost in queues, GivenUp frames with too many collisions.
	// Silent and Collided count frames for this node that it did not receive: their
	// senders did not notice, or sent them again.
	Dropped, GivenUp, Silent, Collided uint64
	// Dead counts packets that came to the node while it was dead, or were there when it
	// died. Cut counts those whose line was cut, and Unserved those without a route, a
	// server, or a connection that they belong to.
	Dead, Cut, Unserved uint64
	Connected
}

// Connected counts a client's connections: those opened are closed in order, broken
// (reset by a server that does not know them), given up because no reply came, or still
// open.
type Connected struct {
	Opened, Closed, Broken, TimedOut uint64
	Answers                          uint64 // complete replies
	Retried                          uint64 // packets retransmitted because no reply came in time
}

func (c Counts) minus(o Counts) Counts {
	return Counts{c.Sent - o.Sent, c.Got - o.Got, c.Delay - o.Delay, c.Dropped - o.Dropped, c.GivenUp - o.GivenUp,
		c.Silent - o.Silent, c.Collided - o.Collided, c.Dead - o.Dead, c.Cut - o.Cut, c.Unserved - o.Unserved,
		c.Connected.minus(o.Connected)}
}

func (c Connected) minus(o Connected) Connected {
	return Connected{c.Opened - o.Opened, c.Closed - o.Closed, c.Broken - o.Broken, c.TimedOut - o.TimedOut,
		c.Answers - o.Answers, c.Retried - o.Retried}
}

// Lost is the number of packets permanently lost at the node. For a shared medium, it is
// what ns-2 traces as lost.
func (c Counts) Lost() uint64 { return c.Dropped + c.GivenUp + c.Dead + c.Cut + c.Unserved }

// At returns the counters of a node.
func (n *Net[T]) At(node Node) Counts { return n.nodes[node].Counts }

// Bins returns the counters of a node for each complete bin so far.
func (n *Net[T]) Bins(node Node) []Counts {
	all := make([]Counts, len(n.bins))
	var before Counts
	for i, bin := range n.bins {
		all[i] = bin[node].minus(before)
		before = bin[node]
	}
	return all
}

// closeBins records the counters of the bins that end up to the given time.
func (n *Net[T]) closeBins(now T) {
	for n.binEnd <= now {
		snap := make([]Counts, len(n.nodes))
		for i := range n.nodes {
			snap[i] = n.nodes[i].Counts
		}
		n.bins = append(n.bins, snap)
		n.binEnd = n.span(float64(len(n.bins)+1) * n.config.Bin)
	}
}

// FirstLoss returns when a node first lost a packet, in seconds, or NaN if it never did.
func (n *Net[T]) FirstLoss(node Node) float64 {
	if t := n.nodes[node].firstLoss; t >= 0 {
		return float64(t) / n.second
	}
	return math.NaN()
}

// note counts a loss at a node.
func (n *Net[T]) note(c Cause, at Node) {
	k := &n.nodes[at]
	switch c {
	case queueFull:
		k.Dropped++
	case givenUp:
		k.GivenUp++
	case dead:
		k.Dead++
	case cut:
		k.Cut++
	case unserved:
		k.Unserved++
	case silent:
		k.Silent++
		return
	case collided:
		k.Collided++
		return
	}
	if k.firstLoss < 0 {
		k.firstLoss = n.q.Now
	}
}

// lose counts a lost packet and releases it.
func (n *Net[T]) lose(c Cause, at Node, p int32) {
	n.note(c, at)
	n.pool.drop(p)
}

// Balance accounts for all packets: those Made and Copied (a frame that arrived twice,
// because its sender thought it lost) are Consumed by their receivers, Lost, or InFlight.
type Balance struct{ Made, Copied, Consumed, Lost, InFlight uint64 }

// Balance returns the account of all packets.
func (n *Net[T]) Balance() Balance {
	p := &n.pool
	return Balance{p.made, p.copied - p.retired, p.consumed, p.lost, uint64(len(p.all) - len(p.free))}
}
