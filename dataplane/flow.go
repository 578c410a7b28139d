package dataplane

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// Flow is one that a data plane remembers.
type Flow struct {
	Client   netip.AddrPort   `json:"client"`
	VIP      netip.AddrPort   `json:"vip"`
	Protocol service.Protocol `json:"protocol"`
	Server   netip.AddrPort   `json:"server"`
	// Source is, with fullnat, what the server sees in the client's place.
	Source netip.AddrPort `json:"source,omitzero"`
	// State is "opening", "established", "finishing", "closed", "reset",
	// "udp-opening" or "udp". A server half has no names of their own for UDP's.
	// A balancer lists what is opening by nat and fullnat only.
	State string `json:"state"`
	// Idle is how long no packet of it was seen, at a server half none of the
	// client's, to within five seconds.
	Idle time.Duration `json:"idle"`
}

// FlowQuery picks flows. The zero FlowQuery takes all.
type FlowQuery struct {
	// Client, Server and VIP, where they are valid, are what the flow must
	// have; port 0 is any port.
	Client, Server, VIP netip.AddrPort
	// Protocol, where it is not service.AnyProtocol, is the flow's.
	Protocol service.Protocol
	// Limit is after how many flows to stop; 0: none.
	Limit int
}

// Takes says whether a flow is asked for; Limit is not looked at.
func (q FlowQuery) Takes(f Flow) bool {
	return isEnd(q.Client, f.Client) && isEnd(q.VIP, f.VIP) && isEnd(q.Server, f.Server) &&
		(q.Protocol == service.AnyProtocol || q.Protocol == f.Protocol)
}

// Give yields the flows that some gives, piece by piece while there are more, up
// to Limit. An error ends it.
func (q FlowQuery) Give(yield func(Flow, error) bool, some func() (flows []Flow, more bool, err error)) {
	given := 0
	for more := true; more; {
		var flows []Flow
		var err error
		if flows, more, err = some(); err != nil {
			yield(Flow{}, err)
			return
		}
		for _, f := range flows {
			if !yield(f, nil) {
				return
			}
			if given++; given == q.Limit {
				return
			}
		}
	}
}

// isEnd tells whether an address and port are those asked for.
func isEnd(asked, a netip.AddrPort) bool {
	return !asked.IsValid() || asked.Addr().Unmap() == a.Addr().Unmap() && (asked.Port() == 0 || asked.Port() == a.Port())
}
