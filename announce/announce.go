// Package announce is the door to the network's routing: a whole set of routes
// goes in, the state of the peers comes out. No type of a BGP library crosses
// it; announce/bgp is the implementation, Fake the one for tests.
package announce

import (
	"cmp"
	"net/netip"
	"time"
)

// Route is one prefix that this balancer offers to carry.
type Route struct {
	Prefix  netip.Prefix `json:"prefix"`
	NextHop netip.Addr   `json:"nextHop"`
}

// Compare orders routes by prefix, then next hop.
func (r Route) Compare(o Route) int {
	return cmp.Or(r.Prefix.Addr().Compare(o.Prefix.Addr()), cmp.Compare(r.Prefix.Bits(), o.Prefix.Bits()),
		r.NextHop.Compare(o.NextHop))
}

// RouteSet is a prefix as a router sees it: every balancer that offers it.
type RouteSet struct {
	Prefix netip.Prefix `json:"prefix"`
	// NextHops are distinct and sorted: a router whose list changes its order
	// sends every flow another way.
	NextHops []netip.Addr `json:"nextHops"`
}

// Announcer makes routes known.
type Announcer interface {
	// Set announces exactly these routes and withdraws all others. When it
	// returns, every established peer has been sent the change. It may be
	// called again with the same set.
	Set(routes []Route) error
	// Peers tells how the sessions stand.
	Peers() []Peer
	// Close withdraws everything and ends the sessions.
	Close() error
}

// Established is the State of a Peer whose session is up.
const Established = "established"

// Peer is a routing session in words.
type Peer struct {
	Address string `json:"address"`
	AS      uint32 `json:"as"`
	// State is Established, or the protocol's name for what it waits for.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// LastError is why the session last failed or could not come up, in
	// words; empty where it never did.
	LastError string `json:"lastError,omitempty"`
	// BFD is the state of the fast failure detection ("up", "down", "init"),
	// "off" where it is not asked for, or why it cannot run.
	BFD      string `json:"bfd,omitempty"`
	Received uint32 `json:"received"`
	Sent     uint32 `json:"sent"`
}
