package dataplane

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
)

// Previewer is a data plane that can compute the effect of an Upsert without making it.
type Previewer interface {
	// Preview computes what an Upsert of f would do, and changes nothing. It may be called
	// from any goroutine.
	Preview(f desired.Frontend) (Preview, error)
}

// Preview is the effect of an Upsert on packets of flows that are not tracked.
type Preview struct {
	// Slots is the size of the frontend's Maglev table; 0 without one.
	Slots int
	// Moved is the share, from 0 to 1, of the hash space with another owner than before; 0
	// if the frontend had no Maglev table.
	Moved float64
	// Owners returns the backends that get a flow's packets, one after the other until one
	// knows the flow. It is nil if that is not known in advance, and for a frontend
	// that is not programmed yet.
	Owners func(schedule.Flow) []netip.AddrPort
}
