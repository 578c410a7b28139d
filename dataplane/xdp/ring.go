package xdp

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/ring"
)

// addressRing is a ring by backend addresses: each slot's first, and then older ones.
type addressRing [][1 + ring.Depth]netip.AddrPort

// numbered returns the ring with numbers. Addresses that are not members become 0.
func (r addressRing) numbered(ms members) []ring.Slot {
	numbers := map[netip.AddrPort]ring.ID{}
	for _, m := range ms {
		numbers[m.key.addr] = m.id
	}
	slots := make([]ring.Slot, len(r))
	for i, s := range r {
		slots[i].First = numbers[s[0]]
		n := 0
		for _, addr := range s[1:] {
			if id := numbers[addr]; id != 0 {
				slots[i].Older[n] = id
				n++
			}
		}
	}
	return slots
}
