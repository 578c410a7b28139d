// Package status is what an agent, a reflector or a router reports about itself: a single
// Status value, shown as table, JSON or YAML, and the local socket that serves it. It
// decides nothing and changes nothing.
package status

import (
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/histogram"
	"github.com/fairlead/fairlead/router"
	"github.com/fairlead/fairlead/source"
)

// Status is the state of one agent, reflector or router at one moment. Its JSON field
// names are an interface: fields may be added, never changed.
type Status struct {
	// Version is the version of Fairlead.
	Version string `json:"version"`
	// Kernel is the output of uname -sr.
	Kernel string `json:"kernel"`
	// Node is the name of the node.
	Node string `json:"node"`
	// Role is "balancer", "dsr", "balancer, dsr", "reflector" or "router".
	Role string `json:"role"`
	// ManifestDir is the folder of manifests that the agent reads; empty with a cluster.
	ManifestDir string `json:"manifestDir,omitempty"`
	// Started is when the process started.
	Started time.Time `json:"started"`
	// Time is when the status was gathered. Ages in tables are relative to it.
	Time time.Time `json:"time"`
	// DataPlane is the data plane of a load balancer.
	DataPlane *dataplane.Description `json:"dataPlane,omitempty"`
	// NodeKeys are the keys that authenticate packets between nodes.
	NodeKeys *NodeKeys `json:"nodeKeys,omitempty"`
	// Tables are the tables of limited size in the kernel.
	Tables []dataplane.Table `json:"tables,omitempty"`
	// ReconcileDurations counts comparisons with the kernel by duration.
	ReconcileDurations *histogram.Histogram `json:"reconcileDurations,omitempty"`
	// ProbeDurations counts successful health checks by duration.
	ProbeDurations *histogram.Histogram `json:"probeDurations,omitempty"`
	// DSRAgent is the state of the DSR agent.
	DSRAgent *DSRAgent `json:"dsr,omitempty"`
	// ServiceProxy is the state of the service proxy.
	ServiceProxy *ServiceProxy `json:"serviceProxy,omitempty"`
	// Services lists all Services that the node knows, sorted by ID.
	Services []Service `json:"services"`
	// Routes are sorted by prefix and next hop. A load balancer lists the routes that it
	// advertises, or does not advertise for some reason; a route reflector those that it
	// received; a router those that it received or that its kernel has.
	Routes []Route `json:"routes"`
	// Withdrawing lists routes that a load balancer has withdrawn, and whose withdrawal
	// some peer has not confirmed.
	Withdrawing []advertise.Withdrawal `json:"withdrawing,omitempty"`
	// Leaving lists frontends that are still programmed although they are no longer
	// desired.
	Leaving []Leaving `json:"leaving,omitempty"`
	// Table is the router's part of the kernel routing table.
	Table []router.Route `json:"table,omitempty"`
	// Peers are BGP sessions, layer 2 members and cloud APIs.
	Peers []advertise.Peer `json:"peers"`
	// Drain is present while a load balancer drains.
	Drain *Drain `json:"drain,omitempty"`
	// Degraded lists optional kernel features that are unavailable, and the consequences.
	Degraded []features.Degraded `json:"degraded"`
	// Problems lists rejected configuration and failures.
	Problems []problem.Problem `json:"problems"`
	// FailedCalls counts the calls of the load balancer and the DSR agent that have failed since
	// the start.
	FailedCalls uint64 `json:"failedCalls"`
	// Stale lists objects whose latest change was rejected, so that their previous version
	// is in use.
	Stale []source.Stale `json:"stale"`
}

// ConfigErrors counts the problems of the configuration.
func (s *Status) ConfigErrors() (n int) {
	for _, p := range s.Problems {
		if !p.Failure {
			n++
		}
	}
	return n
}

// ReconcileErrors counts the calls of all roles that have failed since the start.
func (s *Status) ReconcileErrors() uint64 {
	n := s.FailedCalls
	if s.ServiceProxy != nil {
		n += s.ServiceProxy.Failures
	}
	return n
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
	ID string `json:"id"`
	// ForwardingMode is how packets reach the backends.
	ForwardingMode service.Method `json:"forwardingMode"`
	// Scheduler selects the backend of a new flow.
	Scheduler service.Scheduler `json:"scheduler"`
	// MaglevTableSize is the size of the Maglev table.
	MaglevTableSize int `json:"maglevTableSize,omitempty"`
	// Check is the kind of health check.
	Check service.CheckKind `json:"check,omitempty"`
	// Origin is the file and line that define the Service: "web.yaml:12".
	Origin string `json:"origin,omitempty"`
	// StaleSince is when a change of the Service, or of one of its EndpointSlices, was
	// first rejected.
	StaleSince time.Time `json:"staleSince,omitzero"`
	// Frontends are the VIPs and ports of the Service.
	Frontends []Frontend `json:"frontends"`
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
	// VIP is the virtual IP address.
	VIP netip.Addr `json:"vip"`
	// Port is the port, or the first port of a range.
	Port uint16 `json:"port"`
	// LastPort is the last port of a range. Ports 0 to 65535 are the whole address.
	LastPort uint16 `json:"lastPort,omitempty"`
	// Protocol is TCP, UDP or SCTP.
	Protocol string `json:"protocol"`
	// PortName is the name of the port in the Service.
	PortName string `json:"portName,omitempty"`
	// State is why it is or is not served.
	State plan.State `json:"state"`
	// Reason explains a State other than active.
	Reason string `json:"reason,omitempty"`
	// Counts counts the traffic of the frontend.
	Counts dataplane.Counts `json:"counts"`
	// SYNFlood is present after a SYN flood.
	SYNFlood *dataplane.SYNCounts `json:"synFlood,omitempty"`
	// Backends are the backends of the frontend.
	Backends []Backend `json:"backends"`
	// Table is a digest of the frontend's Maglev table, for a query that asks for it.
	Table string `json:"table,omitempty"`
	// Detail is what the kernel has, for a query that selects the frontend.
	Detail *selection.Frontend `json:"detail,omitempty"`
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
	// Address is the address and port of the backend.
	Address netip.AddrPort `json:"address"`
	// Name is the name of its pod or machine.
	Name string `json:"name,omitempty"`
	// Node is the node that it runs on.
	Node string `json:"node,omitempty"`
	// Weight is the desired weight.
	Weight uint32 `json:"weight"`
	// Health is "up", "down", "removed" (down for longer than the drain timeout),
	// "unknown" (before the first probe), or "unchecked" (without health checks in this
	// role).
	Health string `json:"health"`
	// Since is when Health last changed.
	Since time.Time `json:"since,omitzero"`
	// LastError is why the latest failed probe failed.
	LastError string `json:"lastError,omitempty"`
	// InService means that the backend is programmed into the data plane.
	InService bool `json:"inService"`
	// ProgrammedWeight is the weight in the data plane.
	ProgrammedWeight uint32 `json:"programmedWeight"`
	// Quarantine is present while an operator drains the backend.
	Quarantine *service.Quarantine `json:"quarantine,omitempty"`
	// Draining means that the backend keeps its flows and gets no new ones. It describes
	// the programmed state or, if not programmed, the desired state.
	Draining bool `json:"draining"`
	// Counts counts the traffic to the backend.
	Counts dataplane.Counts `json:"counts"`
	// Local is what this node's DSR agent does for the backend, if it has to do anything.
	Local *Local `json:"local,omitempty"`
	// Detail is how it is checked and reached, for a query that selects its frontend.
	Detail *selection.Backend `json:"detail,omitempty"`
}

// Passes reports whether the backend passes its health check, or has none.
func (b *Backend) Passes() bool { return b.Health == "up" || b.Health == "unchecked" }

// Local is what this node's DSR agent does for a backend.
type Local struct {
	// Here means that the backend is on this node and is served.
	Here bool `json:"here"`
	// Flows is the number of tracked flows.
	Flows int `json:"flows"`
	// Reason explains why the backend is not served here.
	Reason string `json:"reason,omitempty"`
}

// NodeKeys identifies the keys for packets between nodes. Nodes with the same key derive
// the same ID.
type NodeKeys struct {
	// Sends is the ID of the key that tags sent packets.
	Sends string `json:"sends"`
	// Accepts are the IDs of the keys that received packets may use.
	Accepts []string `json:"accepts"`
	// Required means that packets without a tag are dropped.
	Required bool `json:"required"`
}

// DSRAgent is the state of the DSR agent in the kernel.
type DSRAgent struct {
	// Attached lists the devices with programs, one line each.
	Attached []string `json:"attached"`
	// Entries are the frontends with backends on this node.
	Entries []Entry `json:"entries"`
	// Flows is the total number of tracked flows.
	Flows int `json:"flows"`
	// Counters counts packets by outcome.
	Counters map[string]uint64 `json:"counters"`
	// ChecksSenders means that only packets from the Senders may be tunneled to pods.
	ChecksSenders bool `json:"checksSenders"`
	// Senders are the addresses of load balancers.
	Senders []netip.Addr `json:"senders"`
}

// Entry is one frontend at one backend on this node.
type Entry struct {
	// VIP is the virtual IP address.
	VIP netip.Addr `json:"vip"`
	// Port is the port.
	Port uint16 `json:"port"`
	// Protocol is TCP, UDP or SCTP.
	Protocol string `json:"protocol"`
	// ForwardingMode is how packets reach the backend.
	ForwardingMode service.Method `json:"forwardingMode"`
	// Server is the address and port of the backend.
	Server netip.AddrPort `json:"backend"`
	// Flows is the number of tracked flows.
	Flows int `json:"flows"`
}

// State summarizes a backend in one word: "in-service", "draining", "drained" or "excluded".
func (b Backend) State() string {
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
	// Prefix is the prefix.
	Prefix netip.Prefix `json:"prefix"`
	// NextHop is empty if this node has no next hop to advertise.
	NextHop netip.Addr `json:"nextHop"`
	// Attributes are the path attributes other than the next hop.
	Attributes route.Attributes `json:"attributes,omitzero"`
	// Advertised means that the route is advertised to peers; on a route reflector, that a
	// load balancer advertises it; on a router, that the kernel has it.
	Advertised bool `json:"advertised"`
	// Since is when a load balancer advertised the route.
	Since time.Time `json:"since,omitzero"`
	// Rule names what prevents the route from being advertised as requested.
	Rule plan.Rule `json:"rule,omitempty"`
	// Reason explains the Rule.
	Reason string `json:"reason,omitempty"`
	// Layer2 is the state on a layer 2 segment, if the VIP is advertised there.
	Layer2 *Layer2 `json:"layer2,omitempty"`
	// Advertisements request the route; only for a query that selects it.
	Advertisements []string `json:"advertisements,omitempty"`
	// Frontends is the number of frontends that it leads to; only for a query that selects
	// it.
	Frontends int `json:"frontends,omitempty"`
}
