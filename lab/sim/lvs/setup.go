// Package lvs contains the paper "Implementation, Simulation of Linux Virtual Server in
// ns-2" as data: its networks, what each of its figures shows, and its claims that can be
// checked. It runs them in the simulator, but draws and writes nothing.
package lvs

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// Topology determines which nodes are connected.
type Topology uint8

// The paper's topologies.
const (
	// Shared has the load balancer and servers on one LAN. Replies return through the
	// load balancer (topology 1).
	Shared Topology = iota
	// Direct has lines from each server to each client for the replies (topology 2).
	Direct
	// Hierarchy has a second load balancer among the servers. Five of the eight servers
	// are behind it, on a separate LAN.
	Hierarchy
	// HierarchyDirect is Hierarchy with lines from servers to clients, as in Direct.
	HierarchyDirect
)

// Load determines when clients send requests, and for how much.
type Load uint8

// The paper's loads.
const (
	// Steady clients send one request per interval.
	Steady Load = iota
	// Odd is one client that waits for one interval or half of it, at random, and gets
	// three replies to each odd request.
	Odd
)

// Rates of the paper's lines and LANs, in bit/s.
const (
	Mega100  = 100e6
	Mega1000 = 1000e6
	lineRate = 10e6
)

const (
	waiting = 100   // maximum number of waiting requests at a server that takes time
	delay   = 0.001 // of every line and of a LAN's link layer, in seconds
	start   = 1.0   // of all clients, in seconds
)

// Setup is one network with one load. Equal setups with the same seed have the same
// result.
type Setup struct {
	Topology  Topology
	LAN       float64 // bit/s
	Method    service.Method
	Scheduler service.Scheduler
	Servers   int
	Clients   int
	Every     float64 // seconds between two requests of a client
	Load      Load
	// Queue is the limit of each queue of the LAN, in packets; 0 means 100.
	Queue int
	// Uneven sets weights 1 and 3 and queues of 50 and 150 packets for two servers, and a
	// queue of 10,000 for the load balancer.
	Uneven bool
	// PerPacket treats every request as a new connection, which lasts Timeout seconds; 0
	// means forever.
	PerPacket bool
	Timeout   float64
	// Serving is the number of replies that a server can send per second; 0 means no
	// limit and no delay.
	Serving float64
	Seconds int // number of measured seconds
	// Seed is the only seed that the setup is run with; 0 means any. That of ns-2, and of
	// the paper, is 1.
	Seed uint32
}

// offered sets the number of clients for a total rate in requests per second.
func (s Setup) offered(rate int) Setup {
	s.Clients = int(float64(rate)*s.Every + 0.5)
	return s
}

// Clock determines how the simulator counts time.
type Clock string

// Clocks.
const (
	Compat Clock = "compat" // like ns-2, to the last digit
	Scale  Clock = "scale"  // integer nanoseconds
)

// Clocks contains all clocks.
var Clocks = []Clock{Compat, Scale}

// Run simulates a setup. It returns an error if the context ends before.
func (s Setup) Run(ctx context.Context, clock Clock, seed uint32) (*Result, error) {
	if clock == Scale {
		return run[sim.Nanoseconds](ctx, s, seed)
	}
	return run[sim.Seconds](ctx, s, seed)
}

// site is a setup's network, with the nodes whose counts matter.
type site[T sim.Time] struct {
	*sim.Net[T]
	balancer sim.Node
	servers  []sim.Node // including load balancers that take the place of servers
	clients  []sim.Node
}

func run[T sim.Time](ctx context.Context, s Setup, seed uint32) (*Result, error) {
	n := &site[T]{Net: sim.New[T](sim.Config{Seed: seed})}
	if err := n.build(s); err != nil {
		return nil, err
	}
	for i := range s.Seconds + 1 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := n.Run(float64(i + 1)); err != nil {
			return nil, err
		}
	}
	return n.result(), nil
}

func (n *site[T]) build(s Setup) error {
	for i := range s.Servers {
		n.servers = append(n.servers, n.Server(sim.Server{Name: fmt.Sprint("server ", i+1), Speed: s.Serving, Queue: waiting}))
	}
	var err error
	if s.Topology == Hierarchy || s.Topology == HierarchyDirect {
		err = n.hierarchy(s)
	} else {
		n.balancer, err = n.farm("balancer", s, n.servers)
	}
	if err != nil {
		return err
	}
	for i := range s.Clients {
		c := sim.Client{Name: fmt.Sprint("client ", i+1), To: n.balancer, Start: start, Every: s.Every}
		if s.Load == Odd {
			c.Load = odd{s.Every}
		}
		rate := lineRate
		if s.Serving > 0 {
			rate = Mega100 // otherwise the line would be the bottleneck
		}
		id := n.Client(c)
		n.clients = append(n.clients, id)
		n.Link(id, n.balancer, rate, delay, 0)
		if s.Topology == Direct || s.Topology == HierarchyDirect {
			for _, server := range n.servers[:s.Servers] {
				n.Link(server, id, lineRate, delay, 0)
			}
		}
	}
	return nil
}

// farm adds a load balancer with its servers, all on one LAN.
func (n *site[T]) farm(name string, s Setup, servers []sim.Node) (sim.Node, error) {
	var weighted []sim.Weighted
	var others []sim.Attached
	for i, server := range servers {
		w, a := sim.Weighted{Node: server}, sim.Attached{Node: server, Queue: s.Queue}
		if s.Uneven {
			w.Weight, a.Queue = uint32(1+2*i), 50+100*i
		}
		weighted, others = append(weighted, w), append(others, a)
	}
	id, err := n.Balancer(sim.Balancer{
		Name: name, Method: s.Method, Scheduler: s.Scheduler, Servers: weighted, Timeout: s.Timeout, PerPacket: s.PerPacket,
	})
	if err != nil {
		return 0, err
	}
	at := sim.Attached{Node: id, Queue: s.Queue}
	if s.Uneven {
		at.Queue = 10000
	}
	n.SharedLAN(s.LAN, delay, append([]sim.Attached{at}, others...))
	return id, nil
}

// hierarchy adds three servers and a load balancer with the other servers behind the
// first load balancer.
func (n *site[T]) hierarchy(s Setup) error {
	const first = 3
	below, err := n.farm("second balancer", s, n.servers[first:])
	if err != nil {
		return err
	}
	n.servers = append(n.servers, below)
	n.balancer, err = n.farm("balancer", s, append(n.servers[:first:first], below))
	return err
}

// odd is the load Odd.
type odd struct{ every float64 }

func (o odd) Next(number int, random *stochastic.Stream) traffic.Request {
	replies := 1 + 2*(number%2)
	return traffic.Request{Wait: o.every / float64(1+random.Below(2)), Replies: replies, Size: replies}
}
