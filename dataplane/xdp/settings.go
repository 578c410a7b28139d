package xdp

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/service"
)

// putSettings changes them while the program runs.
func (d *DataPlane) putSettings(next balancerSettings) error {
	if err := d.kernel.Set.Set(next); err != nil {
		return fmt.Errorf("xdp: write settings: %w", err)
	}
	d.settings = next
	return nil
}

// countNAT lets the program look at packets from servers while, and only
// while, some frontend has the method nat.
func (d *DataPlane) countNAT(h *held, more int) error {
	if h.value.Method != balancerMethodMETHOD_NAT {
		return nil
	}
	return d.setNATs(d.nats + more)
}

func (d *DataPlane) recountNAT(frontends map[service.Key]*held) error {
	n := 0
	for _, h := range frontends {
		if h.value.Method == balancerMethodMETHOD_NAT {
			n++
		}
	}
	return d.setNATs(n)
}

func (d *DataPlane) setNATs(n int) error {
	next := d.settings
	next.Nat = uint32(min(n, 1))
	if next != d.settings {
		if err := d.putSettings(next); err != nil {
			return err
		}
	}
	d.nats = n
	return nil
}

// ownAddresses are those that the settings have.
func (c Config) ownAddresses() (all []netip.Addr) {
	for _, a := range []netip.Addr{c.SourceV4, c.SourceV6} {
		if a.IsValid() {
			all = append(all, a.Unmap())
		}
	}
	return all
}
