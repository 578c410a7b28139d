// Package proxy decides, purely, what the service proxy of one node holds: from
// a Service of Kubernetes, its slices of endpoints and this node it makes
// frontends, with the endpoints that clients of each kind get. It works on one
// Service at a time, so that a change costs the same among ten as among 50,000.
// Where Services come from (source/kube), when they are written (reconciler/proxy) and
// how (dataplane/proxy) is not its business.
package proxy

import (
	"cmp"
	"errors"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// Service is what the proxy needs of a Service of Kubernetes. Once published it
// is never changed.
type Service struct {
	ID      service.ID
	Created time.Time
	// ClusterIPs are one of each family, or none (headless, ExternalName).
	ClusterIPs  []netip.Addr
	ExternalIPs []netip.Addr
	// LoadBalancerIPs are those of status.loadBalancer whose ipMode is not Proxy.
	LoadBalancerIPs []netip.Addr
	Ports           []ServicePort
	// Affinity sends a client to the endpoint that it had last, for so long (ClientIP); 0: none.
	Affinity time.Duration
	// InternalLocal and ExternalLocal are the traffic policies Local.
	InternalLocal, ExternalLocal bool
	// HealthCheckNodePort is answered with whether this node has ready endpoints; 0: not at all.
	HealthCheckNodePort uint16
	// SourceRanges, where there are any, are the only clients that LoadBalancerIPs serve.
	SourceRanges []netip.Prefix
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string
	Protocol service.Protocol
	Port     uint16
	NodePort uint16 // 0: none
}

// SliceID names an EndpointSlice.
type SliceID struct{ Namespace, Name string }

// Compare orders IDs by namespace, then name.
func (id SliceID) Compare(o SliceID) int {
	return cmp.Or(cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}

// Slice is what the proxy needs of an EndpointSlice. Once published it is never
// changed.
type Slice struct {
	ID SliceID
	// Service is the name of the Service, of the same namespace, that it belongs to.
	Service   string
	IPv6      bool
	Ports     []SlicePort
	Endpoints []Endpoint
}

// SlicePort is the port on which the endpoints of a slice serve the Service's
// port of the same name and protocol.
type SlicePort struct {
	Name     string
	Protocol service.Protocol
	Port     uint16
}

// Endpoint is one endpoint of a slice with its conditions (KEP-1669) and hints.
type Endpoint struct {
	Addr                        netip.Addr
	Node                        string
	Ready, Serving, Terminating bool
	// ForZones and ForNodes are the hints; empty where there are none.
	ForZones, ForNodes []string
}

// Node is the node that the proxy is for.
type Node struct{ Name, Zone string }

// Kind is how a frontend's address came to be the Service's.
type Kind uint8

// The kinds of frontends.
const (
	ClusterIP Kind = iota
	ExternalIP
	LoadBalancerIP
	NodePort
)

// Beats says whether a frontend of this kind has its key though one of kind o, of
// another and older Service, claims it, too: a cluster IP is allocated, the
// other addresses are only asked for.
func (k Kind) Beats(o Kind) bool { return k == ClusterIP && o != ClusterIP }

// Key is what a client addresses. The address of a node port is 0.0.0.0 or ::,
// which stands for all addresses on which the node serves them.
type Key struct {
	Addr     netip.Addr
	Port     uint16
	Protocol service.Protocol
}

// Compare orders keys by address, port and protocol.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol))
}

// Target is an endpoint of a frontend; Local ones run on this node.
type Target struct {
	Addr  netip.AddrPort
	Local bool
}

// Empty is what clients get where there is no endpoint for them.
type Empty uint8

// What clients get.
const (
	Refused Empty = iota // ECONNREFUSED, RST or ICMP: the Service has no endpoint at all
	Dropped              // nothing: it has endpoints, but a policy Local and none of them here
)

// Choice is what clients of one kind get.
type Choice struct {
	// Targets are sorted by address, with no address twice. Frontends of a port
	// share the same slice where they have the same targets.
	Targets []Target
	// Keeps are endpoints that get no new flow and keep those that they have, of
	// UDP alone: TCP knows by itself what is a connection. Sorted as Targets are,
	// and none of them.
	Keeps []Target
	Empty Empty
}

// Frontend is one address, port and protocol of a Service.
type Frontend struct {
	Key
	Kind Kind
	// Inside is for this node's own sockets and pods, Outside for what comes
	// from elsewhere.
	Inside, Outside Choice
	Affinity        time.Duration
	// Allow, where there are any, are the only clients served; of the key's family.
	// None being left of another family's serves nobody: then Closed is set.
	Allow  []netip.Prefix
	Closed bool
}

// Sink is told of every change of a source. Its methods may be called from
// several goroutines, and do not wait for anything to be written.
type Sink interface {
	SetService(*Service)
	DeleteService(service.ID)
	SetSlice(*Slice)
	DeleteSlice(SliceID)
	// SetNode gives this node's facts, before Loaded and after every change.
	SetNode(Node)
	// Loaded says that everything there is has been told once: from now on what
	// was not told of does not exist.
	Loaded()
}

// Plane is what a data plane of the service proxy can do. Its calls come from
// one goroutine.
type Plane interface {
	// Apply makes the kernel hold the frontends of set as given, and none at the
	// keys of gone. It writes only what differs from what is held, also by a
	// predecessor. One that cannot be held is a Refusal among its errors, and
	// delays no other. After an error it may be called again.
	Apply(set []Frontend, gone []Key) error
	// Keys gives the keys of all frontends held.
	Keys() []Key
	// SetNodeAddresses names the addresses on which node ports are served.
	SetNodeAddresses([]netip.Addr) error
	Close() error
}

// Refusal is why a Plane cannot hold one frontend; what it held there stays.
type Refusal struct {
	Key Key
	Err error
}

func (r Refusal) Error() string { return "frontend " + r.Key.String() + ": " + r.Err.Error() }

// Unwrap gives the reason.
func (r Refusal) Unwrap() error { return r.Err }

// Refusals parts an error of Apply: what is refused, and what has failed beside,
// nil for nothing.
func Refusals(err error) (refused []Refusal, rest error) {
	switch e := err.(type) {
	case Refusal:
		return []Refusal{e}, nil
	case interface{ Unwrap() []error }:
		var others []error
		for _, one := range e.Unwrap() {
			r, other := Refusals(one)
			refused, others = append(refused, r...), append(others, other)
		}
		return refused, errors.Join(others...)
	}
	return nil, err
}
