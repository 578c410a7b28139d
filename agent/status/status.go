// Package status is what an agent, a reflector or a router says of itself: one
// Status value, shown as table, JSON or YAML, and the local socket on which it
// is asked for. Nothing is decided here, and nothing here changes anything.
package status

import (
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/router"
	"github.com/fairlead/fairlead/source"
)

// Status is the view of one agent, reflector or router at one moment. Its JSON
// field names are an interface: they may be added to, never changed.
type Status struct {
	Version string `json:"version"`
	// Kernel is as uname -sr says it.
	Kernel string `json:"kernel"`
	Node   string `json:"node"`
	// Role is "balancer", "server", "balancer, server", "reflector" or
	// "router".
	Role    string    `json:"role"`
	Started time.Time `json:"started"`
	// Time is when this was told; ages in tables count from it.
	Time time.Time `json:"time"`
	// DataPlane is absent where the role has none.
	DataPlane *dataplane.Description `json:"dataPlane,omitempty"`
	// NodeKeys is absent where packets between nodes are not authenticated.
	NodeKeys *NodeKeys `json:"nodeKeys,omitempty"`
	// ServerHalf is absent where the role has none.
	ServerHalf *ServerHalf `json:"serverHalf,omitempty"`
	// ServiceProxy is absent where the role has none.
	ServiceProxy *ServiceProxy `json:"serviceProxy,omitempty"`
	// Services are sorted by ID.
	Services []Service `json:"services"`
	// Routes are sorted by prefix and next hop: on a balancer those it
	// announces or would, on a reflector those it heard, on a router those it
	// heard or its kernel holds.
	Routes []Route `json:"routes"`
	// Withdrawing are routes that a balancer has withdrawn, and of which somebody has
	// not confirmed that; Leaving are the frontends that are held though nothing wants
	// them any more.
	Withdrawing []advertise.Withdrawal `json:"withdrawing,omitempty"`
	Leaving     []Leaving              `json:"leaving,omitempty"`
	// Table is a router's part of its kernel's table.
	Table []router.Route   `json:"table,omitempty"`
	Peers []advertise.Peer `json:"peers"`
	// Drain is how a balancer leaves; absent where it does not.
	Drain *Drain `json:"drain,omitempty"`
	// Degraded are optional kernel features that are refused here, and what is
	// lost with them.
	Degraded []features.Degraded `json:"degraded"`
	// Problems are what was refused of the input, and what failed.
	Problems []problem.Problem `json:"problems"`
	// Stale are objects that are used as they were before a change that is rejected.
	Stale []source.Stale `json:"stale"`
}

// complete gives s with no list nil, so that JSON has [] and never null.
func (s Status) complete() Status {
	s.Services = append([]Service{}, s.Services...)
	for i := range s.Services {
		fs := append([]Frontend{}, s.Services[i].Frontends...)
		for j := range fs {
			fs[j].Backends = append([]Backend{}, fs[j].Backends...)
		}
		s.Services[i].Frontends = fs
	}
	if s.ServerHalf != nil {
		s.ServerHalf = s.ServerHalf.complete()
	}
	s.Routes = append([]Route{}, s.Routes...)
	s.Peers = append([]advertise.Peer{}, s.Peers...)
	s.Degraded = append([]features.Degraded{}, s.Degraded...)
	s.Problems = append([]problem.Problem{}, s.Problems...)
	s.Stale = append([]source.Stale{}, s.Stale...)
	return s
}

// Service is one Service as this agent sees it.
type Service struct {
	// ID is "namespace/name".
	ID        string            `json:"id"`
	Method    service.Method    `json:"method"`
	Scheduler service.Scheduler `json:"scheduler"`
	RingSize  int               `json:"ringSize,omitempty"`
	Check     service.CheckKind `json:"check,omitempty"`
	// Origin is where it was read: "web.yaml:12".
	Origin string `json:"origin,omitempty"`
	// StaleSince is since when the Service, or an EndpointSlice of it, is not what its
	// source says, which is rejected; zero where it is.
	StaleSince time.Time  `json:"staleSince,omitzero"`
	Frontends  []Frontend `json:"frontends"`
}

// The states of a frontend beyond those that the plan knows: what became of
// its wish. All states but plan.Active come with a reason in words. Where there
// is a server half alone, active means that a server of the frontend is here.
const (
	// Pending: wanted, but the data plane does not hold it yet.
	Pending plan.State = "pending"
	// Refused: the data plane cannot hold it as it is wanted.
	Refused plan.State = "refused"
	// Idle: a server half has nothing to do for it.
	Idle plan.State = "idle"
)

// Frontend is one VIP and port.
type Frontend struct {
	VIP  netip.Addr `json:"vip"`
	Port uint16     `json:"port"`
	// LastPort ends a range of ports; ports 0 to 65535 are the whole address.
	LastPort uint16 `json:"lastPort,omitempty"`
	Protocol string `json:"protocol"`
	PortName string `json:"portName,omitempty"`
	// Reason says why State is not active.
	State  plan.State       `json:"state"`
	Reason string           `json:"reason,omitempty"`
	Counts dataplane.Counts `json:"counts"`
	// SYNFlood is absent where no SYN flood has been met.
	SYNFlood *dataplane.SYNCounts `json:"synFlood,omitempty"`
	Backends []Backend            `json:"backends"`
}

// SYNProtected says that the frontend is being protected from a SYN flood now.
func (f Frontend) SYNProtected() bool { return f.SYNFlood != nil && f.SYNFlood.Guarded }

// Key gives "TCP 10.1.1.1:80", as service.Key does.
func (f Frontend) Key() string {
	k := service.Key{VIP: f.VIP, Port: f.Port, Last: f.LastPort}
	return f.Protocol + strings.TrimPrefix(k.String(), k.Protocol.String())
}

// Backend is one server behind a frontend.
type Backend struct {
	Address netip.AddrPort `json:"address"`
	Name    string         `json:"name,omitempty"`
	Node    string         `json:"node,omitempty"`
	// Weight is the one asked for.
	Weight uint32 `json:"weight"`
	// Health is "up", "down", "gone" where it was down for longer than its
	// connections are kept, "unknown" before the first probe, or "unchecked" where the Service asks for no checks, or this role makes none.
	Health string `json:"health"`
	// Since is when Health last changed; zero where it never did.
	Since time.Time `json:"since,omitzero"`
	// LastError is why the last failed probe failed.
	LastError string `json:"lastError,omitempty"`
	// InService: the data plane really holds it, HeldWeight with which weight.
	InService  bool   `json:"inService"`
	HeldWeight uint32 `json:"heldWeight"`
	// Draining: established flows stay, no new ones come. It is said of what
	// is held, or where nothing is, of what is asked for.
	Draining bool             `json:"draining"`
	Counts   dataplane.Counts `json:"counts"`
	// Local is absent where there is no server half, or none is needed.
	Local *Local `json:"local,omitempty"`
}

// Local is what this node's server half does for a backend.
type Local struct {
	// Here: the server is on this node, and is served.
	Here bool `json:"here"`
	// Flows are the flows remembered.
	Flows int `json:"flows"`
	// Reason says why it is not Here.
	Reason string `json:"reason,omitempty"`
}

// NodeKeys names the keys of packets between nodes by their IDs, which nodes with the same
// key agree on.
type NodeKeys struct {
	Sends    string   `json:"sends"`
	Accepts  []string `json:"accepts"`
	Required bool     `json:"required"`
}

// ServerHalf is the servers' half of direct return as the kernel holds it.
type ServerHalf struct {
	// Attached has one line a device.
	Attached []string `json:"attached"`
	// Entries are the frontends at servers of this node.
	Entries []Entry `json:"entries"`
	// Flows are all that are remembered.
	Flows int `json:"flows"`
	// Counters are packets, by what became of them.
	Counters map[string]uint64 `json:"counters"`
	// ChecksSenders says that tunnelled packets are accepted only from Senders.
	ChecksSenders bool `json:"checksSenders"`
	// Senders are the addresses of load balancers.
	Senders []netip.Addr `json:"senders"`
}

// Entry is one frontend at one server of this node.
type Entry struct {
	VIP      netip.Addr     `json:"vip"`
	Port     uint16         `json:"port"`
	Protocol string         `json:"protocol"`
	Method   service.Method `json:"method"`
	Server   netip.AddrPort `json:"server"`
	Flows    int            `json:"flows"`
}

// state sums a backend up in one word.
func (b Backend) state() string {
	switch {
	case b.InService && b.Draining:
		return "draining"
	case b.InService && b.HeldWeight > 0:
		return "in-service"
	case b.Draining:
		return "drained"
	}
	return "out"
}

// Route is one prefix by one next hop.
type Route struct {
	Prefix netip.Prefix `json:"prefix"`
	// NextHop is empty where this node has none to announce.
	NextHop netip.Addr `json:"nextHop"`
	// Attributes are what the route says beside its next hop.
	Attributes route.Attributes `json:"attributes,omitzero"`
	// Announced: peers have been told (on a reflector: a balancer has told us;
	// on a router: the kernel holds it).
	Announced bool `json:"announced"`
	// Since is when a balancer announced it; zero where it did not.
	Since time.Time `json:"since,omitzero"`
	// Rule names what keeps it from being announced, or from being announced as
	// somebody wishes; Reason says the same in words.
	Rule   plan.Rule `json:"rule,omitempty"`
	Reason string    `json:"reason,omitempty"`
	// Layer2 is absent where VIPs are not announced so.
	Layer2 *Layer2 `json:"layer2,omitempty"`
}
