package dataplane

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// Reader is a data plane that reads a single frontend, at a cost that does not depend on
// the number of others.
type Reader interface {
	// Read returns what is programmed for a key, or nil. It may be called from any
	// goroutine.
	Read(k service.Key) (*Programmed, error)
}

// Programmed is a frontend as the kernel has it.
type Programmed struct {
	// Frontend is the same as in List.
	Frontend desired.Frontend
	// Slots is the number of slots from which backends are selected, Owned the number of
	// each backend. Digest is one of which backend owns which slot. They are zero if this
	// data plane has no such table.
	Slots    int
	Digest   string
	Owned    map[netip.AddrPort]int
	Counters FrontendCounters
}

// Path is how the kernel of a node sends packets to an address.
type Path struct {
	// Interface is the interface of the route.
	Interface string `json:"interface,omitempty"`
	// Gateway is the next hop of the route; none if the address is on the link.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// MAC is the neighbor's address, if it is resolved.
	MAC string `json:"mac,omitempty"`
	// MTU is that of the route or the interface.
	MTU int `json:"mtu,omitempty"`
	// Local means that the address is one of the node itself.
	Local bool `json:"local,omitempty"`
	// Error is why packets cannot be sent.
	Error string `json:"error,omitempty"`
}
