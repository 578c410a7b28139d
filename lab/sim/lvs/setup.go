// Package lvs is the paper "Implementation, Simulation of Linux Virtual Server in
// ns-2" as data: its networks, what each of its figures shows, and what can be
// checked of what it says. It runs them in the simulator; it draws and writes
// nothing.
package lvs

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim"
)

// Topology is who is joined with whom.
type Topology uint8

// The paper's topologies.
const (
	// Shared has balancer and servers on one LAN, by which replies come back
	// through the balancer (topology 1).
	Shared Topology = iota
	// Direct has lines from each server to each client for the replies
	// (topology 2).
	Direct
	// Hierarchy has a second balancer among the servers, with five of the eight
	// servers on a LAN of its own.
	Hierarchy
)

// Load is when clients ask, and for how much.
type Load uint8

// The paper's loads.
const (
	// Steady clients ask once in each span.
	Steady Load = iota
	// Odd is one client that waits for one span or for half of it, at random, and
	// gets three replies to each odd request.
	Odd
)

// Rates of the paper's lines and LANs, in bits a second.
const (
	Mega100  = 100e6
	Mega1000 = 1000e6
	lineRate = 10e6
)

const (
	waiting = 100   // requests at a server that takes time
	delay   = 0.001 // of every line and of a LAN's link layer, in seconds
	start   = 1.0   // of all clients, in seconds
)

// Setup is one network under one load. Equal setups with one seed have one
// result.
type Setup struct {
	Topology  Topology
	LAN       float64 // bits a second
	Method    service.Method
	Scheduler service.Scheduler
	Servers   int
	Clients   int
	Every     float64 // seconds between two requests of a client
	Load      Load
	// Uneven gives two servers the weights 1 and 3 and queues of 50 and 150
	// packets, and the balancer one of 10,000.
	Uneven bool
	// PerPacket takes every request for a new connection, which lasts Timeout
	// seconds; 0: for ever.
	PerPacket bool
	Timeout   float64
	// Serving is how many replies a server makes in a second; 0: any number, at
	// once.
	Serving float64
	Seconds int // that are measured
}

// offered sets the clients that ask so often together: requests a second.
func (s Setup) offered(rate int) Setup {
	s.Clients = int(float64(rate)*s.Every + 0.5)
	return s
}

// Clock says how the simulator counts time.
type Clock string

// Clocks.
const (
	Compat Clock = "compat" // as ns-2, to the last digit
	Scale  Clock = "scale"  // whole nanoseconds
)

// Clocks are all of them.
var Clocks = []Clock{Compat, Scale}

// Run simulates a setup; an error also where the context ends before.
func (s Setup) Run(ctx context.Context, clock Clock, seed uint32) (*Result, error) {
	if clock == Scale {
		return run[sim.Nanoseconds](ctx, s, seed)
	}
	return run[sim.Seconds](ctx, s, seed)
}

// site is a setup's network, with who is counted.
type site[T sim.Time] struct {
	*sim.Net[T]
	balancer sim.Node
	servers  []sim.Node // and balancers in their place
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
	if s.Topology == Hierarchy {
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
			rate = Mega100 // or the line would be full first
		}
		id := n.Client(c)
		n.clients = append(n.clients, id)
		n.Link(id, n.balancer, rate, delay, 0)
		if s.Topology == Direct {
			for _, server := range n.servers {
				n.Link(server, id, lineRate, delay, 0)
			}
		}
	}
	return nil
}

// farm adds a balancer of servers, all on one LAN.
func (n *site[T]) farm(name string, s Setup, servers []sim.Node) (sim.Node, error) {
	var weighted []sim.Weighted
	var others []sim.Attached
	for i, server := range servers {
		w, a := sim.Weighted{Node: server}, sim.Attached{Node: server}
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
	at := sim.Attached{Node: id}
	if s.Uneven {
		at.Queue = 10000
	}
	n.SharedLAN(s.LAN, delay, append([]sim.Attached{at}, others...))
	return id, nil
}

// hierarchy has three servers and a balancer of the others behind the first
// balancer.
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

// odd is the load of that name.
type odd struct{ every float64 }

func (o odd) Next(number int, random *sim.Stream) sim.Request {
	replies := 1 + 2*(number%2)
	return sim.Request{Wait: o.every / float64(1+random.Below(2)), Replies: replies, Size: replies}
}
