package dataplane

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/service"
)

// Flow is one that a data plane remembers.
type Flow struct {
	Client   netip.AddrPort   `json:"client"`
	VIP      netip.AddrPort   `json:"vip"`
	Protocol service.Protocol `json:"protocol"`
	Server   netip.AddrPort   `json:"server"`
	// Source is, with fullnat, what the server sees in the client's place.
	Source netip.AddrPort `json:"source,omitzero"`
	// State is "opening", "established", "finishing", "closed",
	// "udp-opening" or "udp"; one that is opening is listed by nat and
	// fullnat only.
	State string `json:"state"`
	// Idle is how long no packet of it was seen, to within five seconds.
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
func (q FlowQuery) Takes(client, vip, server netip.AddrPort, p service.Protocol) bool {
	return isEnd(q.Client, client) && isEnd(q.VIP, vip) && isEnd(q.Server, server) &&
		(q.Protocol == service.AnyProtocol || q.Protocol == p)
}

// isEnd tells whether an address and port are those asked for.
func isEnd(asked, a netip.AddrPort) bool {
	return !asked.IsValid() || asked.Addr().Unmap() == a.Addr().Unmap() && (asked.Port() == 0 || asked.Port() == a.Port())
}
