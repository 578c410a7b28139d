package addresspool

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/service"
)

// An address that a Service no longer has may still be published in its status until the
// next status write is confirmed. Until then, no other Service gets it.

// Settle confirms that the Service is now published with its current addresses only. It
// reports whether the Service was leaving any address, which may have become free.
func (a *Allocator) Settle(id service.ID) bool {
	was := a.leaving[id]
	delete(a.leaving, id)
	for _, addr := range was {
		a.endLeave(id, addr)
	}
	return len(was) > 0
}

// Leaving returns the addresses that a Service is leaving.
func (a *Allocator) Leaving(id service.ID) []netip.Addr { return slices.Clone(a.leaving[id]) }

// depart records that a Service is leaving addresses.
func (a *Allocator) depart(id service.ID, addrs []netip.Addr) {
	for _, addr := range addrs {
		if !slices.Contains(a.leaving[id], addr) {
			a.leaving[id] = append(a.leaving[id], addr)
			t := a.place(addr)
			t.leaving = append(t.leaving, id)
		}
	}
}

// stay records that a Service is no longer leaving an address.
func (a *Allocator) stay(id service.ID, addr netip.Addr) {
	left := slices.DeleteFunc(a.leaving[id], func(o netip.Addr) bool { return o == addr })
	if a.leaving[id] = left; len(left) == 0 {
		delete(a.leaving, id)
	}
	a.endLeave(id, addr)
}

func (a *Allocator) endLeave(id service.ID, addr netip.Addr) {
	t := a.places[addr]
	t.leaving = slices.DeleteFunc(t.leaving, func(o service.ID) bool { return o == id })
	a.tidy(addr)
}

// leaver returns a Service other than id that is leaving the address.
func (t *tenancy) leaver(id service.ID) (service.ID, bool) {
	i := slices.IndexFunc(t.leaving, func(o service.ID) bool { return o != id })
	if i < 0 {
		return service.ID{}, false
	}
	return t.leaving[i], true
}
