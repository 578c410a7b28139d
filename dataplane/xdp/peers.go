package xdp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/internal/bpfmap"
)

// SetBalancers sets the other load balancers by their own addresses: all of them, the
// only ones from which handed-over packets are accepted, and the draining ones, which are
// queried for packets of unknown flows. This load balancer itself is left out, as are
// draining ones beyond four per family.
func (d *DataPlane) SetBalancers(all, draining []netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.setKnown(slices.Concat(all, draining)); err != nil {
		return fmt.Errorf("xdp: write load balancers: %w", err)
	}
	own := d.config.ownAddresses()
	var families [2]bpf.BalancerHandoverPeers // IPv4, IPv6
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
		family.Who[family.N] = entry.ToAddr(p)
		family.N++
		total++
	}
	for i, family := range families {
		if err := d.kernel.HandoverPeers.Put(uint32(i), family); err != nil {
			return fmt.Errorf("xdp: write draining load balancers: %w", err)
		}
	}
	return d.setDraining(total)
}

// setKnown sets the map of load balancers to exactly the given ones, except this one.
func (d *DataPlane) setKnown(all []netip.Addr) error {
	own, wanted := d.config.ownAddresses(), map[bpf.BalancerAddr]uint8{}
	for _, a := range all {
		if !a.IsValid() {
			return fmt.Errorf("%q is not a valid load balancer address", a)
		}
		if a = a.Unmap(); !slices.Contains(own, a) {
			wanted[entry.ToAddr(a)] = 0
		}
	}
	if most := d.kernel.Balancers.MaxEntries(); len(wanted) > int(most) {
		return fmt.Errorf("%d load balancers exceed the limit of %d", len(wanted), most)
	}
	return bpfmap.Hold(d.kernel.Balancers, wanted)
}

// setDraining enables queries to the draining load balancers, which have been written,
// once the program for that is loaded.
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

// readDraining takes over a predecessor's settings.
func (d *DataPlane) readDraining() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	total := uint32(0)
	for i := range uint32(2) {
		var family bpf.BalancerHandoverPeers
		if err := d.kernel.HandoverPeers.Lookup(i, &family); err != nil {
			return fmt.Errorf("xdp: read draining load balancers: %w", err)
		}
		total += family.N
	}
	return d.setDraining(total)
}
