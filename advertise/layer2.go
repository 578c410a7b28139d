package advertise

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/route"
)

// Answered is an address as a member of a segment sees it: who answers there
// when it is asked for by ARP or neighbour discovery, and why.
type Answered struct {
	// Prefix is the address, in full length; one that is wider is refused.
	Prefix netip.Prefix `json:"prefix"`
	// State is "owner" where this node answers, else why it does not.
	State string `json:"state"`
	// Owner is the member that answers, as far as it is known here.
	Owner  netip.Addr `json:"owner,omitzero"`
	Reason string     `json:"reason"`
	Since  time.Time  `json:"since,omitzero"`
	// Problem: a person should mend it.
	Problem bool `json:"problem,omitempty"`
}

// Together announces by several Announcers at once.
type Together []Announcer

var _ Announcer = Together{}

// Set gives the routes to all of them, also where one fails.
func (t Together) Set(routes []route.Route) error {
	var errs []error
	for _, a := range t {
		errs = append(errs, a.Set(routes))
	}
	return errors.Join(errs...)
}

// Peers are those of all.
func (t Together) Peers() (all []Peer) {
	for _, a := range t {
		all = append(all, a.Peers()...)
	}
	return all
}

// Withdrawing are those of all.
func (t Together) Withdrawing() (all []Withdrawal) {
	for _, a := range t {
		all = append(all, a.Withdrawing()...)
	}
	return all
}

// Close closes all.
func (t Together) Close() error {
	var errs []error
	for _, a := range t {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}
