package xdp

import (
	"fmt"
	"net/netip"
	"slices"
)

// SetDraining names the balancers that are about to leave, by their own
// addresses: packets of flows that this one does not know are handed to them
// before they begin new flows. Those beyond four of a family, and this balancer
// itself, are left out.
func (d *DataPlane) SetDraining(peers []netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.config.ownAddresses()
	var families [2]balancerHandoverPeers // IPv4, IPv6
	total := uint32(0)
	for _, p := range peers {
		p = p.Unmap()
		family := &families[0]
		if p.Is6() {
			family = &families[1]
		}
		if !p.IsValid() {
			return fmt.Errorf("xdp: draining balancers: %q is no address", p)
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
