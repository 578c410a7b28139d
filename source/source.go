// Package source defines the interface to sources of services: a Source publishes complete
// snapshots once everything has loaded. The packages below it (source/manifest,
// source/kube) implement it.
package source

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

// Stale is an object whose previous version is in use, because its current version is
// rejected or cannot be read. The reason is among the Problems.
type Stale struct {
	// Object is "Service default/web".
	Object string `json:"object"`
	// Where is the file and line of the version in use.
	Where string `json:"where,omitempty"`
	// Service is the ID of the Service that the object is, or belongs to.
	Service string `json:"service,omitempty"`
	// Since is when the current version was first rejected.
	Since time.Time `json:"since"`
}

// Snapshot is the complete state of a source at one moment. It is immutable once published.
type Snapshot struct {
	// Services are sorted by ID. A Service that is unchanged between two snapshots is the
	// same pointer in both.
	Services []*service.Service
	// Balancers are the addresses of all balancers, Draining those that are terminating,
	// sorted, if the source is configured with the balancers' Service.
	Balancers, Draining []netip.Addr
	// Names are the names of Balancers, if they have any.
	Names map[netip.Addr]string
	// Senders are the load balancers of all groups from which a backend node accepts
	// packets, sorted, if the source is configured with the labels of their Services; nil
	// if it does not know them yet.
	Senders []netip.Addr
	// Drain has the reasons why this node's balancer must drain, sorted; none if it must
	// not. Last means that it stays active nevertheless, because no other balancer would be
	// left.
	Drain []string
	Last  bool
	// Advertisements select what this node advertises of the Services; nil: everything. If
	// unchanged between two snapshots, it is the same pointer in both.
	Advertisements Advertisements
	// Quarantines are the backends that operators drain, sorted by name.
	Quarantines []service.Quarantine
	// Problems are what was rejected; the version before a rejected change is still among
	// Services.
	Problems []problem.Problem
	// Stale are objects whose previous version is in use, sorted by name.
	Stale []Stale
}

// Advertisements decide what a node advertises. The dynamic type is a pointer to an
// immutable value.
type Advertisements interface {
	// Offers returns the offers with which the node advertises a VIP of a Service, or the
	// reason for having no offers.
	Offers(s *service.Service, vip netip.Addr) ([]route.Offer, string)
}

// Equal reports whether two snapshots are equal.
func (s Snapshot) Equal(o Snapshot) bool {
	return slices.Equal(s.Services, o.Services) && slices.Equal(s.Problems, o.Problems) && slices.Equal(s.Draining, o.Draining) &&
		slices.Equal(s.Balancers, o.Balancers) && slices.Equal(s.Senders, o.Senders) && (s.Senders == nil) == (o.Senders == nil) &&
		maps.Equal(s.Names, o.Names) && slices.Equal(s.Quarantines, o.Quarantines) && slices.Equal(s.Stale, o.Stale) &&
		s.Advertisements == o.Advertisements && slices.Equal(s.Drain, o.Drain) && s.Last == o.Last
}

// Source publishes snapshots.
type Source interface {
	// Run calls publish with the first snapshot once everything has loaded, and again after
	// every change, until ctx ends. It returns an error only if it cannot continue at all.
	Run(ctx context.Context, publish func(Snapshot)) error
}
