package hierarchy

import (
	"context"
	"fmt"
	"math"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim"
)

// medium is what joins a balancer with those below it.
type medium int

const (
	// shared is the paper's LAN, on which frames collide; replies come back by it.
	shared medium = iota
	// switched is a port at which packets queue for the balancer; replies go to the
	// client directly.
	switched
)

// Lines and packets.
const (
	lanRate  = 1000e6 // bits a second
	lanDelay = 0.001  // of a LAN's link layer, in seconds
	fast     = 1e12   // bits a second, of lines that are no bottleneck
	bits     = 8 * 500
)

// tree is a hierarchy: fan-out servers, or balancers, below each balancer.
type tree struct {
	medium        medium
	fanOut, depth int
	// takes is for how long a switched balancer is busy with a packet, in seconds,
	// and queue how many may be there.
	takes float64
	queue int
}

func (t tree) servers() int { return int(math.Round(math.Pow(float64(t.fanOut), float64(t.depth)))) }

// balancers are all of them.
func (t tree) balancers() float64 {
	sum := 0.0
	for level := range t.depth {
		sum += math.Pow(float64(t.fanOut), float64(level))
	}
	return sum
}

func (t tree) String() string { return fmt.Sprintf("%d deep, fan-out %d", t.depth, t.fanOut) }

// outcome is what came of a tree, by the second.
type outcome struct {
	offered float64 // requests
	replies float64
	delay   float64 // of a reply, from the request on, in seconds
	// lost are packets by the level of the balancers that lost them, from the root
	// on, then of the servers; unheard are frames that nobody heard.
	lost    []float64
	unheard float64
	// received are requests that came to servers.
	received float64
}

// packets simulates a tree packet by packet: clients ask at random, rate times a
// second, for some seconds.
func (t tree) packets(ctx context.Context, rate, seconds float64, seed uint32) (*outcome, error) {
	n := &net{Net: sim.New[sim.Nanoseconds](sim.Config{Seed: seed, Bin: seconds / 2}), tree: t, levels: make([][]sim.Node, t.depth+1)}
	root, err := n.below(0)
	if err != nil {
		return nil, err
	}
	client := n.Client(sim.Client{Name: "client", To: root, Load: sim.Poisson(rate, nil)})
	n.Link(client, root, fast, 0, math.MaxInt32)
	if t.medium == switched {
		for _, s := range n.levels[t.depth] {
			n.Link(s, client, fast, 0, math.MaxInt32)
		}
	}
	const parts = 20 // between which one may interrupt
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

// net is a tree's network; levels are the nodes that count a level's losses.
type net struct {
	*sim.Net[sim.Nanoseconds]
	tree
	levels [][]sim.Node
}

// below adds what is from a level on down.
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
	port, err := n.balancer(level, []sim.Node{id}) // in which packets queue for it
	if err != nil {
		return 0, err
	}
	n.Link(port, id, bits/n.takes, 0, n.queue)
	n.levels[level] = append(n.levels[level], port)
	return port, nil
}

// balancer gives each request to the next one of those below.
func (n *net) balancer(level int, children []sim.Node) (sim.Node, error) {
	b := sim.Balancer{Name: fmt.Sprintf("balancer of level %d", level+1), Method: service.DSRNAT, Scheduler: service.RoundRobin, PerPacket: true}
	for _, c := range children {
		b.Servers = append(b.Servers, sim.Weighted{Node: c})
	}
	return n.Balancer(b)
}

// outcome is what happened in the second half of the time: in the first one the
// tree fills.
func (n *net) outcome(client sim.Node, seconds float64) *outcome {
	half := func(node sim.Node) sim.Counts { return n.Bins(node)[1] }
	c := half(client)
	o := &outcome{offered: float64(c.Sent) / seconds, replies: float64(c.Got) / seconds, delay: c.Delay / float64(c.Got)}
	for _, nodes := range n.levels {
		lost := 0.0
		for _, node := range nodes {
			its := half(node)
			lost += float64(its.Lost())
			o.unheard += float64(its.Silent) / seconds
		}
		o.lost = append(o.lost, lost/seconds)
	}
	for _, s := range n.levels[n.depth] {
		o.received += float64(half(s).Got) / seconds
	}
	return o
}
