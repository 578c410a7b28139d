// Package source is the door through which services come in: a Source yields
// whole snapshots and says when it has loaded. Where they come from is the
// business of the packages below (source/manifest, source/kube).
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

// Stale is an object that is used as it was, because what it says now is rejected or
// cannot be read. The problem with that is among the Problems.
type Stale struct {
	// Object is "Service default/web", Where the file and line of the version in use.
	Object string `json:"object"`
	Where  string `json:"where,omitempty"`
	// Service is the Service, "namespace/name", that the object is or belongs to; empty
	// where it belongs to none.
	Service string `json:"service,omitempty"`
	// Since is when what the object says stopped to be valid, as far as it was seen.
	Since time.Time `json:"since"`
}

// Snapshot is all that a source knows at one moment. It is never changed after
// it is published.
type Snapshot struct {
	// Services are sorted by ID. A Service that did not change between two
	// snapshots is the same pointer in both.
	Services []*service.Service
	// Balancers are the addresses of all balancers, Draining of those that are on
	// their way out, sorted, where the source was told who the balancers are.
	Balancers, Draining []netip.Addr
	// Names are those of Balancers, as far as they have any.
	Names map[netip.Addr]string
	// Senders are the load balancers of all groups, from which a backend node accepts
	// packets, sorted, where the source knows by which labels their Services are found;
	// nil where it does not know them yet.
	Senders []netip.Addr
	// Drain says why this node's balancer is to drain, sorted; none: it is not. Last
	// says that it nevertheless serves on, as no other balancer would be left.
	Drain []string
	Last  bool
	// Announcements say what of the Services is announced by this node; nil: all.
	// One that did not change between two snapshots is the same pointer in both.
	Announcements Announcements
	// Problems are what was refused; what an object held before a refused
	// change is still among Services.
	Problems []problem.Problem
	// Stale are objects that are used as they were, by their names.
	Stale []Stale
}

// Announcements decide what a node announces. It is a pointer, and what it
// points to is never changed.
type Announcements interface {
	// Offers gives the offers by which the node announces a VIP of a Service; where
	// there are none, why.
	Offers(s *service.Service, vip netip.Addr) ([]route.Offer, string)
}

// Equal says that two snapshots hold the same.
func (s Snapshot) Equal(o Snapshot) bool {
	return slices.Equal(s.Services, o.Services) && slices.Equal(s.Problems, o.Problems) && slices.Equal(s.Draining, o.Draining) &&
		slices.Equal(s.Balancers, o.Balancers) && slices.Equal(s.Senders, o.Senders) && (s.Senders == nil) == (o.Senders == nil) &&
		maps.Equal(s.Names, o.Names) && slices.Equal(s.Stale, o.Stale) &&
		s.Announcements == o.Announcements && slices.Equal(s.Drain, o.Drain) && s.Last == o.Last
}

// Source yields snapshots.
type Source interface {
	// Run calls publish with the first snapshot once everything has loaded,
	// and again after every change, until ctx ends. It returns an error only
	// where it cannot go on at all.
	Run(ctx context.Context, publish func(Snapshot)) error
}
