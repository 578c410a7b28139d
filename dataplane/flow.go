package dataplane

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// Flow is a tracked flow.
type Flow struct {
	Client   netip.AddrPort   `json:"client"`
	VIP      netip.AddrPort   `json:"vip"`
	Protocol service.Protocol `json:"protocol"`
	Server   netip.AddrPort   `json:"backend"`
	// Source is, with fullnat, the address that the backend sees instead of the
	// client's.
	Source netip.AddrPort `json:"source,omitzero"`
	// State is "opening", "established", "finishing", "closed", "reset",
	// "udp-opening" or "udp". A DSR agent has no separate names for UDP. A load
	// balancer lists opening flows only for nat and fullnat.
	State string `json:"state"`
	// Idle is the time since its last packet, accurate to five seconds. A DSR agent
	// counts only the client's packets.
	Idle time.Duration `json:"idle"`
}

// FlowQuery selects flows. The zero FlowQuery selects all.
type FlowQuery struct {
	// Client, Server and VIP select flows with these addresses, if valid. Port 0
	// matches any port.
	Client, Server, VIP netip.AddrPort
	// Protocol selects flows by protocol, unless it is service.AnyProtocol.
	Protocol service.Protocol
	// Limit is the maximum number of flows; 0: unlimited.
	Limit int
}

// Takes reports whether a flow matches, regardless of Limit.
func (q FlowQuery) Takes(f Flow) bool {
	return isEnd(q.Client, f.Client) && isEnd(q.VIP, f.VIP) && isEnd(q.Server, f.Server) &&
		(q.Protocol == service.AnyProtocol || q.Protocol == f.Protocol)
}

// Give yields the flows that some returns, batch by batch while there are more, up to
// Limit. An error ends it.
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

// isEnd reports whether a matches the requested address and port.
func isEnd(requested, a netip.AddrPort) bool {
	return !requested.IsValid() || requested.Addr().Unmap() == a.Addr().Unmap() && (requested.Port() == 0 || requested.Port() == a.Port())
}
