package xdp

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// errStale means that the next call repairs what a failed one has left.
var errStale = errors.New("the last change has failed and is retried: try again in a moment")

// Preview implements dataplane.Previewer. It lays out the ring as an Upsert would, in
// memory of its own.
func (d *DataPlane) Preview(f desired.Frontend) (dataplane.Preview, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(f); err != nil {
		return dataplane.Preview{}, err
	}
	if d.stale {
		return dataplane.Preview{}, errStale
	}
	f.VIP = f.VIP.Unmap()
	before := d.programmed[f.Key]
	if before == nil { // nobody has connections to it, and there can be many
		if !entry.HasHistory(entry.Of(f)) {
			return dataplane.Preview{}, nil
		}
		return dataplane.Preview{Slots: f.RingSize}, nil
	}
	after := previewed(f, before)
	slots, err := d.rings.Preview(d.ringRequest(diff(before, after)))
	if err != nil || !entry.HasHistory(after.value) {
		return dataplane.Preview{}, err
	}
	now := addressesOf(after.members, slots)
	p := dataplane.Preview{Slots: len(slots), Owners: func(flow schedule.Flow) []netip.AddrPort { return now.owners(f, flow) }}
	if before.value.Slots > 0 && entry.HasHistory(before.value) {
		p.Moved = moved(addressesOf(before.members, d.rings.Slots(before.ring())), now)
	}
	return p, nil
}

// previewed returns a frontend with numbers that need not be free: those of servers that it
// already has, and others.
func previewed(f desired.Frontend, before *programmed) *programmed {
	after := &programmed{key: f.Key, value: entry.Of(f), ours: true}
	after.value.Id, after.value.Turn = before.value.Id, before.value.Turn
	after.value.Flags |= entry.KeepPressure(after.value.Flags, before.value.Flags)
	var next ring.ID = 1
	for _, m := range before.members {
		next = max(next, m.id+1)
	}
	for _, b := range f.Backends {
		addr := netip.AddrPortFrom(b.Addr.Addr().Unmap(), b.Addr.Port())
		s := &server{id: next, key: serverKey{addr, ownerOf(after.value)}}
		if old := before.members.find(addr); old != nil {
			s.id = old.id
		} else {
			next++
		}
		after.members = append(after.members, memberOf(b, s))
	}
	slices.SortFunc(after.members, func(a, b member) int { return a.key.addr.Compare(b.key.addr) })
	return after
}

// addresses are slots with the backends that they name.
type addresses struct {
	of    map[ring.ID]netip.AddrPort
	slots []ring.Slot
}

func addressesOf(ms members, slots []ring.Slot) addresses {
	a := addresses{make(map[ring.ID]netip.AddrPort, len(ms)), slots}
	for _, m := range ms {
		a.of[m.id] = m.key.addr
	}
	return a
}

// owners returns the backends that get a flow's packets.
func (a addresses) owners(f desired.Frontend, flow schedule.Flow) (all []netip.AddrPort) {
	slot := schedule.Slot(a.slots, schedule.HashBy(f.HashBy(), flow))
	ids := []ring.ID{slot.First}
	if f.SecondChance() {
		ids = append(ids, slot.Chain(f.Protocol)...)
	}
	for _, id := range ids {
		if id != 0 {
			all = append(all, a.of[id])
		}
	}
	return all
}

// moved returns the share of the hash space whose owner differs. Tables of different sizes
// divide it differently.
func moved(before, after addresses) float64 {
	n, m := len(before.slots), len(after.slots)
	if n == 0 || m == 0 {
		return 0
	}
	i, j, at, differs := 0, 0, 0, 0 // positions in units of 1/(n*m)
	for i < n && j < m {
		end := min((i+1)*m, (j+1)*n)
		if before.of[before.slots[i].First] != after.of[after.slots[j].First] {
			differs += end - at
		}
		at = end
		if (i+1)*m == end {
			i++
		}
		if (j+1)*n == end {
			j++
		}
	}
	return float64(differs) / float64(n*m)
}
