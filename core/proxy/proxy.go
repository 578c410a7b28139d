// Package proxy decides what the service proxy of one node programs: from a Kubernetes
// Service, its EndpointSlices and the node, it builds frontends with the endpoints for
// each kind of client. It is pure. It works on one Service at a time, so that the cost of
// a change does not depend on the number of Services. Where Services come from
// (source/kube), when they are written (reconciler/proxy) and how (dataplane/proxy) is
// out of scope.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// Service is what the proxy needs from a Kubernetes Service. It is immutable once
// published.
type Service struct {
	ID      service.ID
	Created time.Time
	// ClusterIPs has at most one address per family, or none (headless, ExternalName).
	ClusterIPs  []netip.Addr
	ExternalIPs []netip.Addr
	// LoadBalancerIPs are those of status.loadBalancer whose ipMode is not Proxy.
	LoadBalancerIPs []netip.Addr
	Ports           []ServicePort
	// Affinity is how long a client stays with its last endpoint (ClientIP). 0: none.
	Affinity time.Duration
	// InternalLocal and ExternalLocal select the traffic policy Local.
	InternalLocal, ExternalLocal bool
	// HealthCheckNodePort serves whether this node has ready endpoints. 0: none.
	HealthCheckNodePort uint16
	// SourceRanges, if not empty, lists the only clients served on LoadBalancerIPs.
	SourceRanges []netip.Prefix
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string
	Protocol service.Protocol
	Port     uint16
	NodePort uint16 // 0: none
}

// SliceID identifies an EndpointSlice.
type SliceID struct{ Namespace, Name string }

// Compare orders IDs by namespace, then name.
func (id SliceID) Compare(o SliceID) int {
	return cmp.Or(cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}

// Slice is what the proxy needs from an EndpointSlice. It is immutable once published.
type Slice struct {
	ID SliceID
	// Service is the name of the Service, in the same namespace, that the slice belongs
	// to.
	Service   string
	IPv6      bool
	Ports     []SlicePort
	Endpoints []Endpoint
}

// SlicePort is the port on which the endpoints of a slice serve the Service port of the
// same name and protocol.
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
	// ForZones and ForNodes are the topology hints, if any.
	ForZones, ForNodes []string
}

// Node is the node that the proxy runs on.
type Node struct{ Name, Zone string }

// Kind says where a frontend's address comes from.
type Kind uint8

// Frontend kinds.
const (
	ClusterIP Kind = iota
	ExternalIP
	LoadBalancerIP
	NodePort
)

// Beats reports whether a frontend of kind k gets its key even if an older Service claims
// it with kind o: a cluster IP is allocated, other addresses are only requested.
func (k Kind) Beats(o Kind) bool { return k == ClusterIP && o != ClusterIP }

// Key is the destination that a client addresses. A node port has address 0.0.0.0 or ::,
// which stands for all addresses on which the node serves node ports.
type Key struct {
	Addr     netip.Addr
	Port     uint16
	Protocol service.Protocol
}

// Compare orders keys by address, port and protocol.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol))
}

// Target is an endpoint of a frontend. Local targets run on this node.
type Target struct {
	Addr  netip.AddrPort
	Local bool
}

// Empty is what clients get if there is no endpoint for them.
type Empty uint8

// Outcomes for clients without an endpoint.
const (
	Refused Empty = iota // ECONNREFUSED, RST or ICMP: the Service has no endpoint at all
	Dropped              // no answer: the Service has endpoints, but with policy Local none here
)

// Choice is what clients of one kind get.
type Choice struct {
	// Targets is sorted by address, without duplicates. Frontends of a port with the same
	// targets share the slice.
	Targets []Target
	// Keeps lists endpoints that get no new flows but keep existing ones. UDP only: TCP
	// recognizes connections by itself. Sorted like Targets, and disjoint from them.
	Keeps []Target
	Empty Empty
}

// Frontend is one address, port and protocol of a Service.
type Frontend struct {
	Key
	Kind Kind
	// Inside is for this node's own sockets and pods, Outside for traffic from elsewhere.
	Inside, Outside Choice
	Affinity        time.Duration
	// Allow, if not empty, lists the only clients served, all of the key's family. If
	// source ranges exist only for the other family, nobody is served and Closed is set.
	Allow  []netip.Prefix
	Closed bool
}

// Sink receives every change of a source. Its methods may be called concurrently and do
// not wait for anything to be written.
type Sink interface {
	SetService(*Service)
	DeleteService(service.ID)
	SetSlice(*Slice)
	DeleteSlice(SliceID)
	// SetNode sets the facts of this node, before Loaded and after every change.
	SetNode(Node)
	// Loaded means that everything that exists has been reported once. From now on, what
	// was not reported does not exist.
	Loaded()
}

// Plane is a data plane of the service proxy. It is called from one goroutine.
type Plane interface {
	// Apply programs the frontends of set into the kernel, and removes the keys of gone.
	// It writes only the differences from what is programmed, including by a predecessor.
	// A frontend that cannot be programmed is reported as a Refusal in the error and does
	// not delay others. After an error, Apply may be called again.
	Apply(set []Frontend, gone []Key) error
	// Keys returns the keys of all programmed frontends. If anything may have changed them
	// since they were last read, they are read again.
	Keys() []Key
	// Check compares the kernel with what is programmed, and returns an error that names a
	// difference, nil without one. Apply may be called meanwhile, and does not wait for all
	// of it. After an error, Keys and Apply with everything repair it.
	Check(context.Context) error
	// SetNodeAddresses sets the addresses on which node ports are served.
	SetNodeAddresses([]netip.Addr) error
	Close() error
}

// Refusal is why a Plane cannot program one frontend. What was programmed there stays.
type Refusal struct {
	Key Key
	Err error
}

func (r Refusal) Error() string { return "frontend " + r.Key.String() + ": " + r.Err.Error() }

// Unwrap returns the reason.
func (r Refusal) Unwrap() error { return r.Err }

// Refusals splits an error of Apply into refusals and the remaining error, which may be
// nil.
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
