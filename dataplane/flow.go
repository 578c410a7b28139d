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
	// "udp-opening" or "udp".
	State string `json:"state"`
	// Idle is how long no packet of it was seen, to within five seconds.
	Idle time.Duration `json:"idle"`
}
