// Package status is what an agent, a reflector or a router reports about itself: a single
// Status value, shown as table, JSON or YAML, and the local socket that serves it. It
// decides nothing and changes nothing.
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

// Status is the state of one agent, reflector or router at one moment. Its JSON field
// names are an interface: fields may be added, never changed.
type Status struct {
	Version string `json:"version"`
	// Kernel is the output of uname -sr.
	Kernel string `json:"kernel"`
	Node   string `json:"node"`
	// Role is "balancer", "dsr", "balancer, dsr", "reflector" or "router".
	Role    string    `json:"role"`
	Started time.Time `json:"started"`
	// Time is when the status was gathered. Ages in tables are relative to it.
	Time time.Time `json:"time"`
	// DataPlane is omitted if the role has none.
	DataPlane *dataplane.Description `json:"dataPlane,omitempty"`
	// NodeKeys is omitted if packets between nodes are not authenticated.
	NodeKeys *NodeKeys `json:"nodeKeys,omitempty"`
	// DSRAgent is omitted if the role has none.
	DSRAgent *DSRAgent `json:"dsr,omitempty"`
	// ServiceProxy is omitted if the role has none.
	ServiceProxy *ServiceProxy `json:"serviceProxy,omitempty"`
	// Services are sorted by ID.
	Services []Service `json:"services"`
	// Routes are sorted by prefix and next hop: on a load balancer those that it
	// advertises or would advertise, on a reflector those that it received, on a router
	// those that it received or its kernel has.
	Routes []Route `json:"routes"`
	// Withdrawing lists routes that a load balancer has withdrawn but that some peer has
	// not confirmed. Leaving lists the frontends that are still programmed although they
	// are no longer desired.
	Withdrawing []advertise.Withdrawal `json:"withdrawing,omitempty"`
	Leaving     []Leaving              `json:"leaving,omitempty"`
	// Table is a router's part of the kernel routing table.
	Table []router.Route   `json:"table,omitempty"`
	Peers []advertise.Peer `json:"peers"`
	// Drain is the drain state of a load balancer; omitted if it is not draining.
	Drain *Drain `json:"drain,omitempty"`
	// Degraded lists optional kernel features that are unavailable here, and the
	// consequences.
	Degraded []features.Degraded `json:"degraded"`
	// Problems lists rejected input and failures.
	Problems []problem.Problem `json:"problems"`
	// Stale lists objects whose last change was rejected, so that the version before it
	// is used.
	Stale []source.Stale `json:"stale"`
}

// complete returns s with empty instead of nil lists, so that JSON has [] and never null.
func (s Status) complete() Status {
	s.Services = append([]Service{}, s.Services...)
	for i := range s.Services {
		fs := append([]Frontend{}, s.Services[i].Frontends...)
		for j := range fs {
			fs[j].Backends = append([]Backend{}, fs[j].Backends...)
		}
		s.Services[i].Frontends = fs
	}
	if s.DSRAgent != nil {
		s.DSRAgent = s.DSRAgent.complete()
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
	ID              string            `json:"id"`
	ForwardingMode  service.Method    `json:"forwardingMode"`
	Scheduler       service.Scheduler `json:"scheduler"`
	MaglevTableSize int               `json:"maglevTableSize,omitempty"`
	Check           service.CheckKind `json:"check,omitempty"`
	// Origin is where it was read: "web.yaml:12".
	Origin string `json:"origin,omitempty"`
	// StaleSince is the time since which a change of the Service, or of one of its EndpointSlices,
	// has been rejected; zero if none is.
	StaleSince time.Time  `json:"staleSince,omitzero"`
	Frontends  []Frontend `json:"frontends"`
}

// States of a frontend in addition to those of the plan: the result of programming it.
// All states except plan.Active have a reason. On a node with only a DSR agent, active
// means that the frontend has a local backend.
const (
	// Pending: desired, but not yet programmed into the data plane.
	Pending plan.State = "pending"
	// Rejected: the data plane rejects it.
	Rejected plan.State = "rejected"
	// Idle: a DSR agent has nothing to do for it.
	Idle plan.State = "idle"
)

// Frontend is one VIP and port.
type Frontend struct {
	VIP  netip.Addr `json:"vip"`
	Port uint16     `json:"port"`
	// LastPort is the end of a port range; ports 0 to 65535 are the whole address.
	LastPort uint16 `json:"lastPort,omitempty"`
	Protocol string `json:"protocol"`
	PortName string `json:"portName,omitempty"`
	// Reason explains why State is not active.
	State  plan.State       `json:"state"`
	Reason string           `json:"reason,omitempty"`
	Counts dataplane.Counts `json:"counts"`
	// SYNFlood is omitted if there has been no SYN flood.
	SYNFlood *dataplane.SYNCounts `json:"synFlood,omitempty"`
	Backends []Backend            `json:"backends"`
}

// SYNProtected reports whether the frontend is currently protected against a SYN flood.
func (f Frontend) SYNProtected() bool { return f.SYNFlood != nil && f.SYNFlood.Guarded }

// Key returns "TCP 10.1.1.1:80", like service.Key.
func (f Frontend) Key() string {
	k := service.Key{VIP: f.VIP, Port: f.Port, Last: f.LastPort}
	return f.Protocol + strings.TrimPrefix(k.String(), k.Protocol.String())
}

// Backend is one backend of a frontend.
type Backend struct {
	Address netip.AddrPort `json:"address"`
	Name    string         `json:"name,omitempty"`
	Node    string         `json:"node,omitempty"`
	// Weight is the desired weight.
	Weight uint32 `json:"weight"`
	// Health is "up", "down", "removed" if it was down for longer than the drain timeout,
	// "unknown" before the first probe, or "unchecked" if the Service has no health
	// checks or this role does not run any.
	Health string `json:"health"`
	// Since is when Health last changed; zero if it never did.
	Since time.Time `json:"since,omitzero"`
	// LastError is why the last failed probe failed.
	LastError string `json:"lastError,omitempty"`
	// InService means that it is programmed into the data plane, with weight ProgrammedWeight.
	InService        bool   `json:"inService"`
	ProgrammedWeight uint32 `json:"programmedWeight"`
	// Draining means that established flows stay and new ones go elsewhere. It describes
	// the programmed state or, if not programmed, the desired state.
	Draining bool             `json:"draining"`
	Counts   dataplane.Counts `json:"counts"`
	// Local is omitted if there is no DSR agent, or none is needed.
	Local *Local `json:"local,omitempty"`
}

// Local is what this node's DSR agent does for a backend.
type Local struct {
	// Here means that the backend is on this node and is served.
	Here bool `json:"here"`
	// Flows is the number of tracked flows.
	Flows int `json:"flows"`
	// Reason explains why it is not Here.
	Reason string `json:"reason,omitempty"`
}

// NodeKeys identifies the keys for packets between nodes. Nodes with the same key derive
// the same ID.
type NodeKeys struct {
	Sends    string   `json:"sends"`
	Accepts  []string `json:"accepts"`
	Required bool     `json:"required"`
}

// DSRAgent is the state of the DSR agent in the kernel.
type DSRAgent struct {
	// Attached has one line per device.
	Attached []string `json:"attached"`
	// Entries are the frontends with backends on this node.
	Entries []Entry `json:"entries"`
	// Flows is the total number of tracked flows.
	Flows int `json:"flows"`
	// Counters counts packets by outcome.
	Counters map[string]uint64 `json:"counters"`
	// ChecksSenders means that tunneled packets are accepted only from Senders.
	ChecksSenders bool `json:"checksSenders"`
	// Senders are the addresses of load balancers.
	Senders []netip.Addr `json:"senders"`
}

// Entry is one frontend at one backend on this node.
type Entry struct {
	VIP            netip.Addr     `json:"vip"`
	Port           uint16         `json:"port"`
	Protocol       string         `json:"protocol"`
	ForwardingMode service.Method `json:"forwardingMode"`
	Server         netip.AddrPort `json:"server"`
	Flows          int            `json:"flows"`
}

// state summarizes a backend in one word.
func (b Backend) state() string {
	switch {
	case b.InService && b.Draining:
		return "draining"
	case b.InService && b.ProgrammedWeight > 0:
		return "in-service"
	case b.Draining:
		return "drained"
	}
	return "excluded"
}

// Route is one prefix with one next hop.
type Route struct {
	Prefix netip.Prefix `json:"prefix"`
	// NextHop is invalid if this node has none to advertise.
	NextHop netip.Addr `json:"nextHop"`
	// Attributes are the path attributes other than the next hop.
	Attributes route.Attributes `json:"attributes,omitzero"`
	// Advertised means that it has been advertised to peers (on a reflector: received from
	// a load balancer; on a router: installed in the kernel).
	Advertised bool `json:"advertised"`
	// Since is when a load balancer advertised it; zero if it did not.
	Since time.Time `json:"since,omitzero"`
	// Rule says what prevents it from being advertised, or from being advertised as
	// requested; Reason explains it.
	Rule   plan.Rule `json:"rule,omitempty"`
	Reason string    `json:"reason,omitempty"`
	// Layer2 is omitted if VIPs are not advertised that way.
	Layer2 *Layer2 `json:"layer2,omitempty"`
}
