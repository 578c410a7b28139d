// Package advertise is the interface to network routing: an Announcer takes the complete
// set of routes and reports the state of its peers. The interface contains no types of a
// BGP library. advertise/bgp is an implementation, Fake the one for tests.
package advertise

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/route"
)

// RouteSet is a prefix as a router sees it: with every load balancer that advertises it.
type RouteSet struct {
	Prefix netip.Prefix `json:"prefix"`
	// NextHops are distinct and sorted: if the order of a router's list changes, it sends
	// every flow elsewhere.
	NextHops []netip.Addr `json:"nextHops"`
	// Weights are the shares of the next hops, in the same order, as computed by Shares.
	// Empty if all are equal.
	Weights []int `json:"weights,omitempty"`
	// Uneven explains why received bandwidths do not result in shares.
	Uneven string `json:"uneven,omitempty"`
}

// Announcer advertises routes.
type Announcer interface {
	// Set replaces the advertised routes and returns without waiting for the network. It
	// may be called again with the same routes. Prefixes are independent: the error names
	// those that failed, all others are as requested.
	Set(routes []route.Route) error
	// Withdrawing lists the routes that are not in the last Set but for which packets may
	// still arrive, because some peer has not confirmed the withdrawal. It is empty once
	// all have.
	Withdrawing() []Withdrawal
	// Peers returns the state of the sessions.
	Peers() []Peer
	// Close withdraws everything and closes the sessions.
	Close() error
}

// Withdrawal is a route whose withdrawal some peer has not confirmed yet.
type Withdrawal struct {
	// Prefix is the prefix of the route, or all addresses of a family if it is not known
	// what an earlier process advertised.
	Prefix netip.Prefix `json:"prefix"`
	// From is the peer that has not confirmed it: "BGP peer 10.0.0.109", "cloud webhook".
	From string `json:"from"`
	// Since is when it was withdrawn.
	Since time.Time `json:"since"`
	// Reason explains why it is not confirmed, as far as known.
	Reason string `json:"reason"`
}

// String returns "waiting for withdrawal from cloud webhook since 12:00:03 (HTTP 500)".
func (w Withdrawal) String() string {
	return fmt.Sprintf("waiting for withdrawal from %s since %s (%s)", w.From, w.Since.UTC().Format(time.RFC3339), w.Reason)
}

// Compare orders withdrawals by prefix, then by peer.
func (w Withdrawal) Compare(o Withdrawal) int {
	return cmp.Or(w.Prefix.Compare(o.Prefix), cmp.Compare(w.From, o.From))
}

// Everything returns withdrawals for all addresses, for when it is not known what is
// still advertised.
func Everything(from string, since time.Time, reason string) []Withdrawal {
	return []Withdrawal{
		{netip.PrefixFrom(netip.IPv4Unspecified(), 0), from, since, reason},
		{netip.PrefixFrom(netip.IPv6Unspecified(), 0), from, since, reason},
	}
}

// Established is the State of a Peer whose session is up.
const Established = "established"

// Peer describes a routing session.
type Peer struct {
	// Name is the peer's name in the configuration, if it has one.
	Name string `json:"name,omitempty"`
	// Address is the address of the peer.
	Address string `json:"address"`
	// AS is the AS number of the peer.
	AS uint32 `json:"as"`
	// State is "established", or the state of the protocol.
	State string `json:"state"`
	// Since is when the State began.
	Since time.Time `json:"since"`
	// Unconfigured means that no peer with this address is configured, so that its
	// connections are rejected.
	Unconfigured bool `json:"unconfigured,omitempty"`
	// LastError is why a session that is not established failed.
	LastError string `json:"lastError,omitempty"`
	// BFD is the BFD state ("up", "down", "init"), "off" if disabled, or why BFD cannot
	// run.
	BFD string `json:"bfd,omitempty"`
	// Received is the number of prefixes that the peer currently advertises.
	Received uint32 `json:"received"`
	// Sent is the number of prefixes that are currently advertised to the peer.
	Sent uint32 `json:"sent"`
	// UpdatesReceived counts UPDATE messages from the peer.
	UpdatesReceived uint64 `json:"updatesReceived"`
	// UpdatesSent counts UPDATE messages to the peer.
	UpdatesSent uint64 `json:"updatesSent"`
	// Flaps counts the established sessions that have ended.
	Flaps uint64 `json:"flaps"`
}
