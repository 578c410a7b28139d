// Package tail simulates how long requests take with each of the schedulers: work with
// heavy tails, several load balancers that see only their own connections, and outdated
// counts. A server consists of cores and one queue.
package tail

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/eventqueue"
	"github.com/fairlead/fairlead/lab/sim/experiments/draw"
)

// View is what load balancers know of servers' connections.
type View string

// Views. The product has Own.
const (
	// Own means that each load balancer knows only its own connections, without delay.
	Own View = "own"
	// All means all connections without delay: what a single load balancer knows.
	All View = "all"
	// Reports means all connections, as last reported by each server.
	Reports View = "reports"
	// ReportsAndOwn means the reports, plus what the load balancer has opened since.
	ReportsAndOwn View = "reports+own"
)

// Server consists of cores that take requests from one queue, first come, first served.
type Server struct {
	Cores  int
	Weight uint32
}

// Case is one farm with one load. Times are in units of a request's mean work.
type Case struct {
	Scheduler service.Scheduler
	Servers   []Server
	Balancers int
	View      View
	// Age is the interval between a server's reports.
	Age float64
	// Linger is how long an ended connection still counts with Own and All.
	Linger float64
	// Load is the utilization of all cores.
	Load float64
	Work draw.Work
	// Requests is the number of measured requests. A quarter as many precede them as a
	// warm-up.
	Requests int
	Seed     uint32
}

// Clients connect to VIPs with the same servers, uniformly at random.
const (
	clients = 20000
	vips    = 512
)

// ringSize is the Maglev table size: the product's size for small services.
const ringSize = 2039

// unit is the mean work in nanoseconds. It is large enough for integer times to be
// precise.
const unit = 1e6

// farm is a running Case.
type farm struct {
	c         *Case
	slots     []ring.Slot
	by        schedule.By
	balancers []balancer
	free      [][]int64 // by server and core, the time from which it is free
	given     []int64   // by server, its total work
	running   []uint32  // by server, the open connections
	reported  []uint32  // by server, the connections in its last report
	ends      eventqueue.Agenda[end]
	// looks is the load balancer that is currently selecting.
	looks *balancer

	arrivals, works, flows draw.Stream
}

type balancer struct {
	chooser schedule.Chooser
	// conns contains the load balancer's own connections by server; with ReportsAndOwn,
	// those opened since the server's report.
	conns []uint32
}

// end is the end of a connection, or a server's report.
type end struct {
	balancer int32 // report for a server's report
	server   int32
}

const report = -1

func newFarm(c *Case) (*farm, error) {
	n := len(c.Servers)
	f := &farm{c: c, balancers: make([]balancer, c.Balancers), given: make([]int64, n), running: make([]uint32, n), reported: make([]uint32, n),
		arrivals: draw.NewStream(c.Seed, 1), works: draw.NewStream(c.Seed, 2), flows: draw.NewStream(c.Seed, 3)}
	f.by = desired.Frontend{Scheduler: c.Scheduler}.HashBy()
	var members []ring.Member
	for i, s := range c.Servers {
		members = append(members, ring.Member{ID: ring.ID(i + 1), Addr: netip.AddrPortFrom(address(10, i), 80), Weight: s.Weight})
		f.free = append(f.free, make([]int64, s.Cores))
	}
	for i := range f.balancers {
		f.balancers[i].conns = make([]uint32, n)
	}
	if c.View == Reports || c.View == ReportsAndOwn {
		for i := range c.Servers { // spread over time
			f.ends.At(int64(c.Age*unit)*int64(i+1)/int64(n), end{report, int32(i)})
		}
	}
	var err error
	f.slots, err = ring.For(c.Scheduler, nil, ringSize, members)
	return f, err
}

// address returns address number i of a network.
func address(network byte, i int) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], uint32(network)<<24|uint32(i+1))
	return netip.AddrFrom4(a)
}

// look returns what the currently selecting load balancer knows of a server.
func (f *farm) look(id ring.ID) schedule.Server {
	i := id - 1
	s := schedule.Server{Weight: f.c.Servers[i].Weight}
	switch f.c.View {
	case Own:
		s.Conns = f.looks.conns[i]
	case All:
		s.Conns = f.running[i]
	case Reports:
		s.Conns = f.reported[i]
	case ReportsAndOwn:
		s.Conns = f.reported[i] + f.looks.conns[i]
	}
	return s
}

// Times is the result of a Case.
type Times struct {
	// Took contains how long each measured request took from its arrival to its end, in
	// the order of arrivals, in units of the mean work.
	Took []float64
	// Fullest is the utilization of the server with the most work. If it is 1 or more,
	// the server's queue grows throughout the run.
	Fullest float64
}

// Run simulates the case.
func (c *Case) Run() (*Times, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	f, err := newFarm(c)
	if err != nil {
		return nil, err
	}
	cores := 0
	for _, s := range c.Servers {
		cores += s.Cores
	}
	gap := unit / float64(c.Load*float64(cores))
	took := make([]float64, 0, c.Requests)
	now := int64(0)
	for n := range c.Requests + c.Requests/4 {
		now += int64(math.Round(gap * f.arrivals.Exp()))
		t := f.serve(now)
		if n >= c.Requests/4 {
			took = append(took, float64(t)/unit)
		}
	}
	fullest := 0.0
	for i, s := range c.Servers {
		fullest = max(fullest, float64(f.given[i])/float64(float64(s.Cores)*float64(now)))
	}
	return &Times{took, fullest}, nil
}

// serve returns how long a request that arrives now takes.
func (f *farm) serve(now int64) int64 {
	for e, ok := f.ends.Next(now + 1); ok; e, ok = f.ends.Next(now + 1) {
		f.end(e)
	}
	at := f.flows.Below(len(f.balancers))
	flow := schedule.Flow{
		Client: netip.AddrPortFrom(address(11, f.flows.Below(clients)), uint16(1024+f.flows.Below(64000))),
		Key:    service.Key{VIP: address(12, f.flows.Below(vips)), Port: 80, Protocol: service.TCP},
	}
	f.looks = &f.balancers[at]
	server := f.looks.chooser.Choose(f.c.Scheduler, f.slots, schedule.HashBy(f.by, flow), f.look) - 1
	core := 0
	for i, t := range f.free[server] {
		if t < f.free[server][core] {
			core = i
		}
	}
	work := int64(math.Round(unit * f.c.Work.Draw(f.works)))
	done := max(now, f.free[server][core]) + work
	f.given[server] += work
	f.free[server][core] = done
	f.running[server]++
	f.looks.conns[server]++
	counts := done
	if f.c.View == Own || f.c.View == All {
		counts += int64(f.c.Linger * unit)
	}
	f.ends.At(counts, end{int32(at), int32(server)})
	return done - now
}

func (f *farm) end(e end) {
	if e.balancer != report {
		f.running[e.server]--
		if f.c.View == Own {
			f.balancers[e.balancer].conns[e.server]--
		}
		return
	}
	f.reported[e.server] = f.running[e.server]
	for i := range f.balancers {
		f.balancers[i].conns[e.server] = 0
	}
	f.ends.At(f.ends.Now()+int64(f.c.Age*unit), e)
}

func (c *Case) validate() error {
	switch {
	case len(c.Servers) == 0:
		return fmt.Errorf("tail: servers: none")
	case c.Balancers < 1:
		return fmt.Errorf("tail: balancers: %d is less than 1", c.Balancers)
	case !(c.Load > 0 && c.Load < 1):
		return fmt.Errorf("tail: load: %g is not between 0 and 1", c.Load)
	case (c.View == Reports || c.View == ReportsAndOwn) && !(c.Age*unit >= 1):
		return fmt.Errorf("tail: age: %g; a report stands for a while", c.Age)
	case c.Requests < 1:
		return fmt.Errorf("tail: requests: %d is less than 1", c.Requests)
	}
	return nil
}
