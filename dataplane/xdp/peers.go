package xdp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/bpfmap"
)

// SetBalancers names the other balancers by their own addresses: all of them, from
// which alone packets that are handed over are accepted, and those that drain,
// which are asked about packets of unknown flows. This balancer itself is left out,
// as are draining ones beyond four of a family.
func (d *DataPlane) SetBalancers(all, draining []netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.setKnown(slices.Concat(all, draining)); err != nil {
		return fmt.Errorf("xdp: write balancers: %w", err)
	}
	own := d.config.ownAddresses()
	var families [2]balancerHandoverPeers // IPv4, IPv6
	total := uint32(0)
	for _, p := range draining {
		p = p.Unmap()
		family := &families[0]
		if p.Is6() {
			family = &families[1]
		}
		if slices.Contains(own, p) || int(family.N) == len(family.Who) {
			continue
		}
		family.Who[family.N] = toAddr(p)
		family.N++
		total++
	}
	for i, family := range families {
		if err := d.kernel.HandoverPeers.Put(uint32(i), family); err != nil {
			return fmt.Errorf("xdp: write draining balancers: %w", err)
		}
	}
	return d.setDraining(total)
}

// setKnown makes the map of balancers hold just the given ones, without this.
func (d *DataPlane) setKnown(all []netip.Addr) error {
	own, wanted := d.config.ownAddresses(), map[balancerAddr]uint8{}
	for _, a := range all {
		if !a.IsValid() {
			return fmt.Errorf("%q is no address", a)
		}
		if a = a.Unmap(); !slices.Contains(own, a) {
			wanted[toAddr(a)] = 0
		}
	}
	if most := d.kernel.Balancers.MaxEntries(); len(wanted) > int(most) {
		return fmt.Errorf("%d balancers: at most %d fit", len(wanted), most)
	}
	return bpfmap.Hold(d.kernel.Balancers, wanted)
}

// setDraining lets packets ask them, who are written, by a program that is there
// before the first can.
func (d *DataPlane) setDraining(n uint32) error {
	if n > 0 {
		if err := d.Prepare(); err != nil {
			return err
		}
	}
	next := d.settings
	next.DrainingPeers = n
	if next == d.settings {
		return nil
	}
	return d.putSettings(next)
}

// readDraining takes over what a predecessor was told.
func (d *DataPlane) readDraining() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	total := uint32(0)
	for i := range uint32(2) {
		var family balancerHandoverPeers
		if err := d.kernel.HandoverPeers.Lookup(i, &family); err != nil {
			return fmt.Errorf("xdp: read draining balancers: %w", err)
		}
		total += family.N
	}
	return d.setDraining(total)
}
