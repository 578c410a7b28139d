package advertise

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/route"
)

// Answered describes an address from the view of a member of a segment: who answers ARP
// or neighbor discovery for it, and why.
type Answered struct {
	// Prefix is the address with full length; a shorter prefix is rejected.
	Prefix netip.Prefix `json:"prefix"`
	// State is "owner" if this node answers, otherwise why it does not.
	State string `json:"state"`
	// Owner is the member that answers, as far as known here.
	Owner  netip.Addr `json:"owner,omitzero"`
	Reason string     `json:"reason"`
	Since  time.Time  `json:"since,omitzero"`
	// Problem means that an operator should fix it.
	Problem bool `json:"problem,omitempty"`
}

// Together combines several Announcers.
type Together []Announcer

var _ Announcer = Together{}

// Set passes the routes to all of them, even if one fails.
func (t Together) Set(routes []route.Route) error {
	var errs []error
	for _, a := range t {
		errs = append(errs, a.Set(routes))
	}
	return errors.Join(errs...)
}

// Peers returns the peers of all of them.
func (t Together) Peers() (all []Peer) {
	for _, a := range t {
		all = append(all, a.Peers()...)
	}
	return all
}

// Withdrawing returns the withdrawals of all of them.
func (t Together) Withdrawing() (all []Withdrawal) {
	for _, a := range t {
		all = append(all, a.Withdrawing()...)
	}
	return all
}

// Close closes all of them.
func (t Together) Close() error {
	var errs []error
	for _, a := range t {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}
