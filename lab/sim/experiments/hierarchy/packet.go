package hierarchy

import (
	"context"
	"fmt"
	"math"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// medium is what connects a load balancer with the level below it.
type medium int

const (
	// shared is the paper's LAN, on which frames collide. Replies return through it.
	shared medium = iota
	// switched is a port with a queue in front of the load balancer. Replies go directly
	// to the client.
	switched
)

// Lines and packets.
const (
	lanRate  = 1000e6 // bit/s
	lanDelay = 0.001  // of a LAN's link layer, in seconds
	fast     = 1e12   // bit/s, of lines that must not be a bottleneck
	bits     = 8 * 500
)

// tree is a hierarchy: each load balancer has fanOut servers or load balancers below it.
type tree struct {
	medium        medium
	fanOut, depth int
	// takes is how long a switched load balancer is busy with a packet, in seconds, and
	// queue the maximum number of packets in it.
	takes float64
	queue int
}

func (t tree) servers() int { return int(math.Round(math.Pow(float64(t.fanOut), float64(t.depth)))) }

// balancers returns the total number of load balancers.
func (t tree) balancers() float64 {
	sum := 0.0
	for level := range t.depth {
		sum += math.Pow(float64(t.fanOut), float64(level))
	}
	return sum
}

func (t tree) String() string { return fmt.Sprintf("%d deep, fan-out %d", t.depth, t.fanOut) }

// outcome contains a tree's results per second.
type outcome struct {
	offered float64 // in requests
	replies float64
	delay   float64 // from a request to its reply, in seconds
	// lost is the number of lost packets by level of load balancers, from the root on,
	// and then of servers. undetected is the number of frames that no station received.
	lost       []float64
	undetected float64
	// received is the number of requests that reached servers.
	received float64
}

// packets simulates a tree packet by packet: random requests, rate per second, for some
// seconds.
func (t tree) packets(ctx context.Context, rate, seconds float64, seed uint32) (*outcome, error) {
	n := &net{Net: sim.New[sim.Nanoseconds](sim.Config{Seed: seed, Bin: seconds / 2}), tree: t, levels: make([][]sim.Node, t.depth+1)}
	root, err := n.below(0)
	if err != nil {
		return nil, err
	}
	client := n.Client(sim.Client{Name: "client", To: root, Load: traffic.Poisson(rate, nil)})
	n.Link(client, root, fast, 0, math.MaxInt32)
	if t.medium == switched {
		for _, s := range n.levels[t.depth] {
			n.Link(s, client, fast, 0, math.MaxInt32)
		}
	}
	const parts = 20 // may be interrupted between parts
	for i := range parts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := n.Run(seconds * float64(i+1) / parts); err != nil {
			return nil, err
		}
	}
	if b := n.Balance(); b.Made+b.Copied != b.Consumed+b.Lost+b.InFlight {
		return nil, fmt.Errorf("%s: packets are nowhere: %+v", t, b)
	}
	return n.outcome(client, seconds/2), nil
}

// net is a tree's network. levels contains the nodes that count each level's losses.
type net struct {
	*sim.Net[sim.Nanoseconds]
	tree
	levels [][]sim.Node
}

// below adds a level and everything below it.
func (n *net) below(level int) (sim.Node, error) {
	if level == n.depth {
		id := n.Server(sim.Server{Name: fmt.Sprint("server ", len(n.levels[level])+1)})
		n.levels[level] = append(n.levels[level], id)
		return id, nil
	}
	var children []sim.Node
	for range n.fanOut {
		child, err := n.below(level + 1)
		if err != nil {
			return 0, err
		}
		children = append(children, child)
	}
	id, err := n.balancer(level, children)
	if err != nil {
		return 0, err
	}
	if n.medium == shared {
		stations := []sim.Attached{{Node: id}}
		for _, c := range children {
			stations = append(stations, sim.Attached{Node: c})
		}
		n.SharedLAN(lanRate, lanDelay, stations)
		n.levels[level] = append(n.levels[level], id)
		return id, nil
	}
	for _, c := range children {
		n.Link(id, c, fast*100, 0, math.MaxInt32)
	}
	port, err := n.balancer(level, []sim.Node{id}) // the port in which packets queue for it
	if err != nil {
		return 0, err
	}
	n.Link(port, id, bits/n.takes, 0, n.queue)
	n.levels[level] = append(n.levels[level], port)
	return port, nil
}

// balancer adds a load balancer that spreads requests round-robin over its children.
func (n *net) balancer(level int, children []sim.Node) (sim.Node, error) {
	b := sim.Balancer{Name: fmt.Sprintf("balancer of level %d", level+1), Method: service.DSRNAT, Scheduler: service.RoundRobin, PerPacket: true}
	for _, c := range children {
		b.Servers = append(b.Servers, sim.Weighted{Node: c})
	}
	return n.Balancer(b)
}

// outcome returns the results of the second half of the time. In the first half the tree
// fills.
func (n *net) outcome(client sim.Node, seconds float64) *outcome {
	half := func(node sim.Node) sim.Counts { return n.Bins(node)[1] }
	c := half(client)
	o := &outcome{offered: float64(c.Sent) / seconds, replies: float64(c.Got) / seconds, delay: c.Delay / float64(c.Got)}
	for _, nodes := range n.levels {
		lost := 0.0
		for _, node := range nodes {
			its := half(node)
			lost += float64(its.Lost())
			o.undetected += float64(its.Silent) / seconds
		}
		o.lost = append(o.lost, lost/seconds)
	}
	for _, s := range n.levels[n.depth] {
		o.received += float64(half(s).Got) / seconds
	}
	return o
}
