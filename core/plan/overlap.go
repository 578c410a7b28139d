package plan

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/service"
)

// portRanges holds frontends with port ranges, no two of which overlap, by address and
// protocol, sorted by port.
type portRanges map[portsOf][]*Frontend

type portsOf struct {
	vip      netip.Addr
	protocol service.Protocol
}

// overlapping returns a frontend that has a port in common with a range, or nil.
func (r portRanges) overlapping(k service.Key) *Frontend {
	of := r[portsOf{k.VIP, k.Protocol}]
	i, _ := slices.BinarySearchFunc(of, k.Port, func(f *Frontend, port uint16) int { return int(f.Key.Last) - int(port) })
	if i < len(of) && of[i].Key.Overlaps(k) {
		return of[i]
	}
	return nil
}

// add inserts a frontend that overlaps no other.
func (r portRanges) add(f *Frontend) {
	at := portsOf{f.Key.VIP, f.Key.Protocol}
	i, _ := slices.BinarySearchFunc(r[at], f.Key.Port, func(f *Frontend, port uint16) int { return int(f.Key.Port) - int(port) })
	r[at] = slices.Insert(r[at], i, f)
}
