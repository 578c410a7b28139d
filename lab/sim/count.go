package sim

import "math"

// Cause is why a packet was lost, or a frame not heard.
type Cause uint8

// What packets and frames are lost by.
const (
	queueFull Cause = iota // of a link, an interface or a server
	givenUp                // after as many collisions as a frame may have
	silent                 // the frame's beginning came in a gap of its receiver
	collided               // another frame came while it was being received
	dead                   // it came to a node that was dead, or was there when that died
	cut                    // of the line that it was to take
	unserved               // no way leads on, no server takes it, or it is an answer that nobody knows
	causes
)

// Counts is what happened at a node since the beginning, or in one bin.
type Counts struct {
	// Sent are requests of a client, or replies of a server; Got what came: replies
	// at a client, packets at a balancer, requests at a server.
	Sent, Got uint64
	// Delay is the sum, in seconds, of the times that Got replies took from the
	// request on; with connections that answers took which came whole.
	Delay float64
	// Dropped are packets lost in queues, GivenUp frames after too many
	// collisions. Silent and Collided are frames for this node that it did not
	// hear: their senders did not notice, or sent them again.
	Dropped, GivenUp, Silent, Collided uint64
	// Dead are packets that came to the node while it was dead or were there when
	// it died, Cut those whose line was cut, Unserved those that had no way to go
	// on, no server, or no connection that they are an answer of.
	Dead, Cut, Unserved uint64
	Connected
}

// Connected is what became of a client's connections: those that it opened are
// closed in order, broken (reset by a server that does not know them), given up
// since no answer came, or still there.
type Connected struct {
	Opened, Closed, Broken, TimedOut uint64
	Answers                          uint64 // that came whole
	Retried                          uint64 // packets sent again, as no answer came in time
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

// Lost is what was lost at the node for good; of a shared medium what ns-2 traces
// as such.
func (c Counts) Lost() uint64 { return c.Dropped + c.GivenUp + c.Dead + c.Cut + c.Unserved }

// At gives what has happened at a node.
func (n *Net[T]) At(node Node) Counts { return n.nodes[node].Counts }

// Bins gives what happened at a node in each whole bin of the time that was run.
func (n *Net[T]) Bins(node Node) []Counts {
	all := make([]Counts, len(n.bins))
	var before Counts
	for i, bin := range n.bins {
		all[i] = bin[node].minus(before)
		before = bin[node]
	}
	return all
}

// closeBins notes the counts of the bins that end up to a moment.
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

// FirstLoss gives when a node first lost a packet, in seconds; NaN for never.
func (n *Net[T]) FirstLoss(node Node) float64 {
	if t := n.nodes[node].firstLoss; t >= 0 {
		return float64(t) / n.second
	}
	return math.NaN()
}

// note counts what a node lost.
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
		k.firstLoss = n.q.now
	}
}

// lose counts a packet that goes no further, and lets it go.
func (n *Net[T]) lose(c Cause, at Node, p int32) {
	n.note(c, at)
	n.pool.drop(p)
}

// Balance is where all packets are that there ever were: Made and Copied (a frame
// that came twice, as its sender thought it lost) are Consumed by those whom they
// were for, Lost, or InFlight.
type Balance struct{ Made, Copied, Consumed, Lost, InFlight uint64 }

// Balance gives that.
func (n *Net[T]) Balance() Balance {
	p := &n.pool
	return Balance{p.made, p.copied - p.retired, p.consumed, p.lost, uint64(len(p.all) - len(p.free))}
}
