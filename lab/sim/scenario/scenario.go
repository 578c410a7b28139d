// Package scenario reads what is to be simulated from YAML: who is joined with
// whom, the services, the load, and what happens when. It refuses by name and
// line whatever cannot be, builds the network in the simulator, runs it, and says
// what came of it. It reads no file and draws nothing.
package scenario

import (
	"github.com/fairlead/fairlead/core/service"
)

// Clock says how the simulator counts time.
type Clock string

// Clocks.
const (
	Scale  Clock = "scale"  // whole nanoseconds
	Compat Clock = "compat" // floating point, in the order of ns-2
)

// Clocks are all of them, the first that of scenarios that name none.
var Clocks = []Clock{Scale, Compat}

// Measure is something that a run is to say.
type Measure string

// Measures.
const (
	Throughput Measure = "throughput" // replies a second, beside what was asked for
	Loss       Measure = "loss"       // packets lost a second, by reason
	Broken     Measure = "broken"     // connections broken a second
	Latency    Measure = "latency"    // percentiles of the time to the reply
	Shares     Measure = "shares"     // requests a second of each balancer and each server
)

// Measures are all of them.
var Measures = []Measure{Throughput, Loss, Broken, Latency, Shares}

// Scenario is a file as it was read. Rates are a second, times in seconds.
type Scenario struct {
	Name, About string
	Duration    float64
	// Interval is the span for which results are counted apart.
	Interval float64
	line     int // of the interval, else of the duration
	Seeds    int
	Clock    Clock
	// Packet is the size of requests and replies, in bytes.
	Packet   int
	Topology Topology
	Services []Service
	Load     []Load
	Events   []Event
	Measures []Measure
	Goals    Goals

	recovered []float64 // moments at which results are divided, too

	who  map[string]*member // as checked
	lans map[string]*LAN
}

// Topology is who is there, and how they are joined.
type Topology struct {
	Groups []Group
	Links  []Link
	LANs   []LAN
}

// Role is what somebody does.
type Role string

// Roles, as the lists of a topology are called.
const (
	Client   Role = "clients"
	Router   Role = "routers"
	Balancer Role = "balancers"
	Server   Role = "servers"
)

var roles = []Role{Client, Router, Balancer, Server}

// Group is one, or several that are alike: NAME-1, NAME-2 and so on.
type Group struct {
	Role Role
	Name string
	Line int
	// Count is how many there are, 0 for one that is called NAME alone; Present how
	// many of them from the beginning on.
	Count, Present int
	// Of routers.
	ECMP ECMP
	// Buckets of a resilient group.
	Buckets int
	// Of balancers and servers: Takes is for a packet, or for a request, in seconds,
	// on one of Cores; Queue is how many may wait.
	Takes float64
	Tail  Tail
	Cores int
	Queue int
	// Weight of servers; Weights, where there are any, of each: 0 for one that
	// drains.
	Weight  uint32
	Weights []uint32
	// Of is the Service of the manifests whose servers these are, Only the one that
	// these balancers are for.
	Of, Only Ref
	// Spare servers are not in the manifests, but may join.
	Spare int
	// Missed is after how many seconds its checks miss a server that died; 0: as for
	// a Service that says nothing.
	Missed float64

	names []string // kept by Names
}

// ECMP is how a router spreads packets.
type ECMP string

// The ways to.
const (
	Resilient ECMP = "resilient" // a group of buckets: only the dead hop's move
	Plain     ECMP = "plain"     // ranges of the hash (RFC 2992): up to half of the flows move at each change
	Modulo    ECMP = "modulo"    // the hash modulo the hops: nearly all move
)

// Tail is how long the longest of what is drawn are.
type Tail string

// Tails.
const (
	Fixed       Tail = "fixed"
	Exponential Tail = "exponential"
	Pareto      Tail = "pareto" // with exponent 1.5: its variance is without bound
)

var tails = []Tail{Fixed, Exponential, Pareto}

// Ref is a name in a file: a group's, for all in it, or one's.
type Ref struct {
	Name string
	Line int
}

// Link is a line of full rate in both directions. With groups it is one for each
// pair.
type Link struct {
	Between     [2]Ref
	Line        int
	Rate, Delay float64 // bits a second; seconds
	Queue       int
}

// LAN joins all its members.
type LAN struct {
	Name        string
	Line        int
	Kind        Medium
	Members     []Ref
	Rate, Delay float64
	Queue       int
}

// Medium is what a LAN is.
type Medium string

// Media.
const (
	Switched Medium = "switched" // full duplex, no collisions
	Shared   Medium = "shared"   // half duplex, as ns-2 has it
)

// Service is a VIP with its servers.
type Service struct {
	Name               string
	Line               int
	Method             service.Method
	Scheduler          service.Scheduler
	Survival           service.Survival
	RingSize           int
	Balancers, Servers []Ref
	// Timeout is for how long after its last packet a balancer remembers a
	// connection.
	Timeout float64
	// Buckets are those of the table that its flows are found in by the kernel's
	// jhash, 0 for a table without chains; Looks is what each flow of a chain takes
	// that is looked at, in seconds.
	Buckets int
	Looks   float64
}

// Arrivals is when connections, or single requests, come.
type Arrivals string

// Arrivals.
const (
	Steady  Arrivals = "steady"
	Poisson Arrivals = "poisson"
	Trace   Arrivals = "trace"
)

// Load is what some clients ask of a service.
type Load struct {
	From, To Ref
	Line     int
	Protocol Protocol
	Arrivals Arrivals
	// Rate is of connections a second, of all clients together.
	Rate    float64
	Trace   []Asked // in the order of time
	doubled bool    // there are times and a file
	// Start and End are of the load, in seconds.
	Start, End float64
	// Answer is the size of what is asked for, in bytes, on the mean.
	Answer float64
	Tail   Tail
	// Requests of a connection, one after the other, with Pause seconds between on
	// the mean.
	Requests int
	Pause    float64
	// Timeout is for how long an answer is waited for first, before a request is
	// sent again, and Retries how often it is.
	Timeout float64
	Retries int
}

// Protocol is how clients ask.
type Protocol string

// Protocols.
const (
	TCP Protocol = "tcp" // connections that wait, send again and can break
	UDP Protocol = "udp" // single packets, each with one answer
)

// Action is what happens.
type Action string

// Actions. All but the last two are of balancers and servers.
const (
	Dies   Action = "dies"   // silently
	Leaves Action = "leaves" // having said so
	Drains Action = "drains" // takes no new connections
	Joins  Action = "joins"
	Cuts   Action = "cuts"  // a link
	Mends  Action = "mends" // a link that is cut
)

// Event is something that happens at a moment.
type Event struct {
	Line   int
	At     float64
	Action Action
	What   []Ref // one, or the two ends of a link
	// Noticed is after how many seconds others notice that somebody died, or that
	// a link was cut.
	Noticed float64
}

// Goals are what an operator wants; 0 where nothing is wanted.
type Goals struct {
	// Failed is the share of connections that may break or be given up, and of
	// single requests that may stay without an answer.
	Failed float64
	// P99 is what 99 of 100 answers may take, in seconds.
	P99 float64
}
