// Package advertise is the door to the network's routing: a whole set of routes
// goes in, the state of the peers comes out. No type of a BGP library crosses
// it; advertise/bgp is the implementation, Fake the one for tests.
package advertise

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/route"
)

// RouteSet is a prefix as a router sees it: every balancer that offers it.
type RouteSet struct {
	Prefix netip.Prefix `json:"prefix"`
	// NextHops are distinct and sorted: a router whose list changes its order
	// sends every flow another way.
	NextHops []netip.Addr `json:"nextHops"`
	// Weights are the shares of the next hops, in their order, as Shares gives
	// them; none where all are alike.
	Weights []int `json:"weights,omitempty"`
	// Uneven says why bandwidths that were heard give no shares.
	Uneven string `json:"uneven,omitempty"`
}

// Announcer makes routes known.
type Announcer interface {
	// Set replaces the routes that are to be announced, and returns without waiting
	// for the network. It may be called again with the same routes. Each prefix
	// stands for itself: the error names those that failed, and the others are as
	// asked.
	Set(routes []route.Route) error
	// Withdrawing lists the routes that the last Set does not have, but for which
	// packets may still be sent here, as somebody has not confirmed that they are
	// gone. It is empty once all have.
	Withdrawing() []Withdrawal
	// Peers tells how the sessions stand.
	Peers() []Peer
	// Close withdraws everything and ends the sessions.
	Close() error
}

// Withdrawal is a route whose withdrawal somebody has not confirmed yet.
type Withdrawal struct {
	// Prefix is the route's; all addresses of a family where it is not known what
	// an earlier process announced.
	Prefix netip.Prefix `json:"prefix"`
	// From is who has not confirmed it: "BGP peer 10.0.0.109", "cloud webhook".
	From string `json:"from"`
	// Since is when it was withdrawn.
	Since time.Time `json:"since"`
	// Reason is why it is not confirmed, as far as that is known.
	Reason string `json:"reason"`
}

// String gives "waiting for withdrawal from cloud webhook since 12:00:03 (HTTP 500)".
func (w Withdrawal) String() string {
	return fmt.Sprintf("waiting for withdrawal from %s since %s (%s)", w.From, w.Since.UTC().Format(time.RFC3339), w.Reason)
}

// Compare orders withdrawals by prefix, then by who has not confirmed them.
func (w Withdrawal) Compare(o Withdrawal) int {
	return cmp.Or(w.Prefix.Compare(o.Prefix), cmp.Compare(w.From, o.From))
}

// Everything is what may still be announced where that is not known: all addresses.
func Everything(from string, since time.Time, reason string) []Withdrawal {
	return []Withdrawal{
		{netip.PrefixFrom(netip.IPv4Unspecified(), 0), from, since, reason},
		{netip.PrefixFrom(netip.IPv6Unspecified(), 0), from, since, reason},
	}
}

// Established is the State of a Peer whose session is up.
const Established = "established"

// Peer is a routing session in words.
type Peer struct {
	// Name is the peer's in the configuration, where it has one.
	Name    string `json:"name,omitempty"`
	Address string `json:"address"`
	AS      uint32 `json:"as"`
	// State is Established, or the protocol's name for what it waits for.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Stranger says that the configuration has no peer with this address: its
	// connections are refused.
	Stranger bool `json:"stranger,omitempty"`
	// LastError is why the session that is not up last failed or could not come up,
	// in words; empty where it is up, or never failed.
	LastError string `json:"lastError,omitempty"`
	// BFD is the state of the fast failure detection ("up", "down", "init"),
	// "off" where it is not asked for, or why it cannot run.
	BFD string `json:"bfd,omitempty"`
	// Received and Sent are the prefixes that are heard from it, and told, now.
	Received uint32 `json:"received"`
	Sent     uint32 `json:"sent"`
	// UpdatesReceived and UpdatesSent are the UPDATE messages since the peer was
	// named; Flaps is how often an established session ended.
	UpdatesReceived uint64 `json:"updatesReceived"`
	UpdatesSent     uint64 `json:"updatesSent"`
	Flaps           uint64 `json:"flaps"`
}
