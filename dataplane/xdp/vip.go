package xdp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// vip is an address of frontends. While it has any, it has a separate entry for the whole
// address. With it the program detects packets to the VIP that match no frontend, and finds
// its port ranges.
type vip struct {
	ports  int           // frontends of one port
	whole  *programmed   // that of the whole address, or nil
	ranges []*programmed // in the order of port_ranges: the first match applies
	place  alloc.Extent  // their location there
}

func (v *vip) empty() bool { return v.ports == 0 && v.whole == nil && len(v.ranges) == 0 }

// with returns v with h among its frontends. fresh: h has a new key; else it replaces the
// frontend with that key.
func (v *vip) with(h *programmed, fresh bool) *vip {
	w := *v
	switch {
	case h.key.Whole():
		w.whole = h
	case h.key.Range():
		w = *v.without(h.key)
		at, _ := slices.BinarySearchFunc(w.ranges, h, compareRanges)
		w.ranges = slices.Insert(w.ranges, at, h)
	case fresh:
		w.ports++
	}
	return &w
}

// compareRanges sorts a protocol's frontend for all ports after its ranges.
func compareRanges(a, b *programmed) int {
	return cmp.Or(-cmp.Compare(min(a.key.Port, 1), min(b.key.Port, 1)), a.key.Compare(b.key))
}

// without returns v without its frontend of that key.
func (v *vip) without(k service.Key) *vip {
	w := *v
	switch {
	case k.Whole():
		w.whole = nil
	case k.Range():
		w.ranges = slices.DeleteFunc(slices.Clone(v.ranges), func(h *programmed) bool { return h.key == k })
	default:
		w.ports--
	}
	return &w
}

// entry returns the entry of the whole address.
func (v *vip) entry() (e bpf.BalancerFrontend) {
	if v.whole != nil {
		e = v.whole.value
	}
	e.Ranges, e.Range = v.place.N, v.place.First
	return e
}

// putVIP makes the program see a VIP with other frontends: its ranges are written
// elsewhere, and its entry switches to them. The place of the old ones rests.
func (d *DataPlane) putVIP(addr netip.Addr, before, after *vip) (err error) {
	if !slices.Equal(before.ranges, after.ranges) {
		if after.place, err = d.takeRanges(uint32(len(after.ranges))); err != nil {
			return err
		}
		if err := d.writeRanges(before, after); err != nil {
			return err
		}
	}
	e := after.entry()
	if after.whole != nil {
		e.Turn = d.turnOf(entry.Whole(addr))
	}
	if err := d.kernel.Frontends.Put(entry.ToKey(entry.Whole(addr)), e); err != nil {
		return fmt.Errorf("write VIP %s: %w", addr, err)
	}
	if before.place != after.place {
		d.ranges.GiveBack(before.place)
	}
	if d.vips[addr] == nil {
		d.bits.Set(addr)
	}
	d.vips[addr] = after
	return nil
}

// dropVIP removes the entry of a VIP without frontends.
func (d *DataPlane) dropVIP(addr netip.Addr, before *vip) error {
	d.bits.Clear(addr)
	if err := d.removeVIP(addr); err != nil {
		return err
	}
	d.ranges.GiveBack(before.place)
	delete(d.vips, addr)
	return nil
}

func (d *DataPlane) removeVIP(addr netip.Addr) error {
	if err := bpf.IgnoreAbsent(d.kernel.Frontends.Delete(entry.ToKey(entry.Whole(addr)))); err != nil {
		return fmt.Errorf("remove VIP %s: %w", addr, err)
	}
	return nil
}

// maxRanges is RANGES_MAX in bpf/balancer/frontend.h.
const maxRanges = 1024

func (d *DataPlane) takeRanges(n uint32) (alloc.Extent, error) {
	if n == 0 {
		return alloc.Extent{}, nil
	}
	if n > maxRanges {
		return alloc.Extent{}, fmt.Errorf("the VIP already has the maximum of %d port ranges", maxRanges)
	}
	if e, ok := d.ranges.Take(n); ok {
		return e, nil
	}
	if d.ranges.Resting() {
		if err := d.grace(); err != nil {
			return alloc.Extent{}, err
		}
		if e, ok := d.ranges.Take(n); ok {
			return e, nil
		}
	}
	return alloc.Extent{}, fmt.Errorf("no %d contiguous free port range entries: raise MaxFrontends", n)
}

// writeRanges writes a VIP's ranges to after's place. Those that stay keep their turns.
func (d *DataPlane) writeRanges(before, after *vip) error {
	turns := map[uint32]uint32{}
	for i := range before.place.N {
		var old bpf.BalancerPortRange
		if err := d.kernel.PortRanges.Lookup(before.place.First+i, &old); err != nil {
			return fmt.Errorf("read port ranges: %w", err)
		}
		turns[old.F.Id] = old.F.Turn
	}
	for i, h := range after.ranges {
		r := bpf.BalancerPortRange{First: h.key.Port, Last: h.key.Last, Proto: uint8(h.key.Protocol), F: h.value}
		r.F.Turn = turns[h.value.Id]
		if err := d.kernel.PortRanges.Put(after.place.First+uint32(i), r); err != nil {
			return fmt.Errorf("write port ranges: %w", err)
		}
	}
	return nil
}

// turnOf reads the current turn of a frontend, which the program may be advancing.
func (d *DataPlane) turnOf(k service.Key) uint32 {
	var now bpf.BalancerFrontend
	if d.kernel.Frontends.Lookup(entry.ToKey(k), &now) != nil {
		return 0 // not written yet
	}
	return now.Turn
}

// repairVIPs ensures that exactly the VIPs of these frontends have an entry, that each has
// all its ranges, and that exactly their bits and our own are set. have are the existing
// entries of whole addresses.
func (d *DataPlane) repairVIPs(frontends map[service.Key]*programmed, have map[netip.Addr]bpf.BalancerFrontend) error {
	d.vips = map[netip.Addr]*vip{}
	for k, h := range frontends {
		v := d.vips[k.VIP]
		if v == nil {
			v = &vip{}
		}
		d.vips[k.VIP] = v.with(h, true)
	}
	d.ranges = alloc.NewExtents(d.kernel.PortRanges.MaxEntries())
	for addr, v := range d.vips {
		if e, ok := have[addr]; ok {
			v.place = alloc.Extent{First: e.Range, N: e.Ranges}
			d.ranges.Mark(v.place)
			continue
		}
		if err := d.kernel.Frontends.Put(entry.ToKey(entry.Whole(addr)), v.entry()); err != nil {
			return fmt.Errorf("xdp: write VIP %s: %w", addr, err)
		}
	}
	for addr := range have {
		if d.vips[addr] != nil {
			continue
		}
		if err := d.removeVIP(addr); err != nil {
			return fmt.Errorf("xdp: %w", err)
		}
	}
	d.rebuildBits()
	return nil
}

// rebuildBits sets the bits of all VIPs and of our own addresses.
func (d *DataPlane) rebuildBits() {
	var all []netip.Addr
	for addr := range d.vips {
		all = append(all, addr)
	}
	d.bits.Replace(append(all, d.config.ownAddresses()...))
}
