// Package scenario reads a simulation from YAML: the topology, the services, the load,
// and events. It rejects what is invalid with the field and line, builds the network in
// the simulator, runs it, and returns the results. It reads no files itself and draws
// nothing.
package scenario

import (
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/scenario/requests"
)

// Clock determines how the simulator counts time.
type Clock string

// Clocks.
const (
	Scale  Clock = "scale"  // integer nanoseconds
	Compat Clock = "compat" // floating point, with the order of events of ns-2
)

// Clocks contains all clocks. The first is the default.
var Clocks = []Clock{Scale, Compat}

// Measure is something that a run measures.
type Measure string

// Measures.
const (
	Throughput Measure = "throughput" // replies per second, and requests per second
	Loss       Measure = "loss"       // packets lost per second, by reason
	Broken     Measure = "broken"     // connections broken per second
	Latency    Measure = "latency"    // percentiles of the response time
	Shares     Measure = "shares"     // requests per second of each load balancer and each server
)

// Measures contains all measures.
var Measures = []Measure{Throughput, Loss, Broken, Latency, Shares}

// Scenario is a parsed file. Rates are per second, times in seconds.
type Scenario struct {
	Name, About string
	Duration    float64
	// Interval is the length of the intervals for which results are counted separately.
	Interval float64
	line     int // line of the interval, or else of the duration
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

	recovered []float64 // additional times at which results are divided

	who  map[string]*member // set by check
	lans map[string]*LAN
}

// Topology contains the members and how they are connected.
type Topology struct {
	Groups []Group
	Links  []Link
	LANs   []LAN
}

// Role is the role of a group.
type Role string

// Roles are named like the lists of a topology.
const (
	Client   Role = "clients"
	Router   Role = "routers"
	Balancer Role = "balancers"
	Server   Role = "servers"
)

var roles = []Role{Client, Router, Balancer, Server}

// Group is a single member, or several identical ones: NAME-1, NAME-2 and so on.
type Group struct {
	Role Role
	Name string
	Line int
	// Count is the number of members, 0 for a single one named NAME. Present is the
	// number of members that are present from the beginning.
	Count, Present int
	// For routers.
	ECMP ECMP
	// Buckets is the number of buckets of a resilient group.
	Buckets int
	// For load balancers and servers: Takes is the time per packet, or per request, in
	// seconds, on one of Cores. Queue is how many may wait.
	Takes float64
	Tail  Tail
	Cores int
	Queue int
	// Weight is the weight of servers. Weights, if not empty, contains the weight of each
	// one: 0 if it drains.
	Weight  uint32
	Weights []uint32
	// Of is the Service in the manifests whose servers these are. Only is the only
	// Service of these load balancers.
	Of, Only Ref
	// Spare is the number of servers that are not in the manifests, but may join.
	Spare int
	// Missed is how long the health checks take to detect a dead server, in seconds; 0
	// means the default of a Service.
	Missed float64

	names []string // cached by Names
}

// ECMP is how a router spreads packets.
type ECMP string

// The ways to spread.
const (
	Resilient ECMP = "resilient" // a group of buckets: only those of a dead hop move
	Plain     ECMP = "plain"     // ranges of the hash (RFC 2992): each change moves up to half of the flows
	Modulo    ECMP = "modulo"    // the hash modulo the hops: nearly all flows move
)

// Tail is the kind of distribution, by its tail.
type Tail string

// Tails.
const (
	Fixed       Tail = "fixed"
	Exponential Tail = "exponential"
	Pareto      Tail = "pareto" // with exponent 1.5, so its variance is infinite
)

var tails = []Tail{Fixed, Exponential, Pareto}

// Ref is a reference by name in a file: to a group, that is, all of its members, or to
// one member.
type Ref struct {
	Name string
	Line int
}

// Link is a full-duplex line. Between groups, it is one line for each pair.
type Link struct {
	Between     [2]Ref
	Line        int
	Rate, Delay float64 // bit/s; seconds
	Queue       int
}

// LAN connects all its members.
type LAN struct {
	Name        string
	Line        int
	Kind        Medium
	Members     []Ref
	Rate, Delay float64
	Queue       int
}

// Medium is the kind of a LAN.
type Medium string

// Media.
const (
	Switched Medium = "switched" // full duplex, no collisions
	Shared   Medium = "shared"   // half duplex, as in ns-2
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
	// Timeout is how long a load balancer tracks a connection after its last packet.
	Timeout float64
	// Buckets is the number of buckets of a table that is looked up by the kernel's
	// jhash, 0 for a table without chains. Looks is the time per flow visited in a chain,
	// in seconds.
	Buckets int
	Looks   float64
}

// Arrivals is how connections, or single requests, arrive.
type Arrivals string

// Arrivals.
const (
	Steady  Arrivals = "steady"
	Poisson Arrivals = "poisson"
	Trace   Arrivals = "trace"
)

// Load contains the requests of some clients to a service.
type Load struct {
	From, To Ref
	Line     int
	Protocol Protocol
	Arrivals Arrivals
	// Rate is the number of connections per second, of all clients together.
	Rate    float64
	Trace   []requests.Asked // sorted by time
	doubled bool             // both times and a file are set
	// Start and End are the start and end of the load, in seconds.
	Start, End float64
	// Answer is the mean size of a reply, in bytes.
	Answer float64
	Tail   Tail
	// Requests is the number of sequential requests per connection, with a mean of Pause
	// seconds between them.
	Requests int
	Pause    float64
	// Timeout is how long a client first waits for a reply before it sends the request
	// again, and Retries how often it does.
	Timeout float64
	Retries int
}

// Protocol is the protocol of clients.
type Protocol string

// Protocols.
const (
	TCP Protocol = "tcp" // connections that wait, retransmit and can break
	UDP Protocol = "udp" // single packets, each with one reply
)

// Action is the kind of an event.
type Action string

// Actions. All but the last two apply to load balancers and servers.
const (
	Dies     Action = "dies"   // without notice
	Leaves   Action = "leaves" // with notice
	Drains   Action = "drains" // accepts no new connections
	Joins    Action = "joins"
	Cuts     Action = "cuts"     // a link
	Restores Action = "restores" // a link that was cut
)

// Event is something that happens at a given time.
type Event struct {
	Line   int
	At     float64
	Action Action
	What   []Ref // one member, or the two ends of a link
	// Noticed is how long others take to notice that a member died, or a link was cut, in
	// seconds.
	Noticed float64
}

// Goals are an operator's requirements; 0 means none.
type Goals struct {
	// Failed is the maximum share of connections that break or are given up, and of
	// single requests without a reply.
	Failed float64
	// P99 is the maximum 99th percentile of the response time, in seconds.
	P99 float64
}
