// Package status is what an agent says of itself: one Status value, shown as
// table, JSON or YAML, and the local socket on which it is asked for. Nothing
// is decided here, and nothing here changes anything.
package status

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plan"
	"github.com/fairlead/fairlead/service"
	"github.com/fairlead/fairlead/source"
)

// Status is the view of one agent, reflector or router at one moment. Its JSON
// field names are an interface: they may be added to, never changed.
type Status struct {
	Version string `json:"version"`
	// Kernel is as uname -sr says it.
	Kernel string `json:"kernel"`
	Node   string `json:"node"`
	// Role is "balancer", "server", "balancer and server", "reflector" or
	// "router".
	Role    string    `json:"role"`
	Started time.Time `json:"started"`
	// Time is when this was told; ages in tables count from it.
	Time time.Time `json:"time"`
	// DataPlane is absent where the role has none.
	DataPlane *dataplane.Description `json:"dataPlane,omitempty"`
	// Services are sorted by ID.
	Services []Service `json:"services"`
	// Routes are sorted by prefix and next hop: on a balancer those it
	// announces or would, on a router those in its kernel.
	Routes []Route         `json:"routes"`
	Peers  []announce.Peer `json:"peers"`
	// Problems are what was refused of the input, and what failed.
	Problems []source.Problem `json:"problems"`
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
	s.Routes = append([]Route{}, s.Routes...)
	s.Peers = append([]announce.Peer{}, s.Peers...)
	s.Problems = append([]source.Problem{}, s.Problems...)
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
	Origin    string     `json:"origin,omitempty"`
	Frontends []Frontend `json:"frontends"`
}

// The states of a frontend beyond those that the plan knows: what became of
// its wish. All states but plan.Active come with a reason in words.
const (
	// Pending: wanted, but the data plane does not hold it yet.
	Pending plan.State = "pending"
	// Refused: the data plane cannot hold it as it is wanted.
	Refused plan.State = "refused"
)

// Frontend is one VIP and port.
type Frontend struct {
	VIP      netip.Addr `json:"vip"`
	Port     uint16     `json:"port"`
	Protocol string     `json:"protocol"`
	PortName string     `json:"portName,omitempty"`
	// Reason says why State is not active.
	State    plan.State       `json:"state"`
	Reason   string           `json:"reason,omitempty"`
	Counts   dataplane.Counts `json:"counts"`
	Backends []Backend        `json:"backends"`
}

// Key gives "TCP 10.1.1.1:80".
func (f Frontend) Key() string {
	return f.Protocol + " " + netip.AddrPortFrom(f.VIP, f.Port).String()
}

// Backend is one server behind a frontend.
type Backend struct {
	Address netip.AddrPort `json:"address"`
	Name    string         `json:"name,omitempty"`
	Node    string         `json:"node,omitempty"`
	Weight  uint32         `json:"weight"`
	// Health is "up", "down", "unknown" before the first probe, or
	// "unchecked" where the Service asks for no checks.
	Health string `json:"health"`
	// Since is when Health last changed; zero where it never did.
	Since time.Time `json:"since,omitzero"`
	// LastError is why the last failed probe failed.
	LastError string `json:"lastError,omitempty"`
	// Draining: established flows stay, no new ones come.
	Draining bool `json:"draining"`
	// InService: the data plane holds it.
	InService bool             `json:"inService"`
	Counts    dataplane.Counts `json:"counts"`
}

// state sums a backend up in one word.
func (b Backend) state() string {
	switch {
	case b.InService && b.Draining:
		return "draining"
	case b.InService:
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
	// Announced: peers have been told (on a router: the kernel holds it).
	Announced bool `json:"announced"`
	// Since is when Announced last changed; zero where it never did.
	Since time.Time `json:"since,omitzero"`
	// Reason says why it is not announced.
	Reason string `json:"reason,omitempty"`
}
