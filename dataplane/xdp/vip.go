package xdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/service"
)

// wholeAddress is the key of a VIP's own entry. Every VIP has one from its
// first frontend to its last: by it the program knows what is sent to the VIP
// but to no frontend, which it drops (bpf/balancer/unserved.h).
func wholeAddress(vip netip.Addr) service.Key { return service.Key{VIP: vip} }

func (d *DataPlane) holdVIP(vip netip.Addr) error {
	entry := balancerFrontend{Method: balancerMethodMETHOD_NONE}
	if err := d.kernel.Frontends.Put(toKey(wholeAddress(vip)), entry); err != nil {
		return fmt.Errorf("write VIP %s: %w", vip, err)
	}
	return nil
}

// releaseVIP removes the entry of a VIP that no frontend has any more.
func (d *DataPlane) releaseVIP(vip netip.Addr) error {
	for k := range d.held {
		if k.VIP == vip {
			return nil
		}
	}
	return d.removeVIP(vip)
}

func (d *DataPlane) removeVIP(vip netip.Addr) error {
	err := d.kernel.Frontends.Delete(toKey(wholeAddress(vip)))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove VIP %s: %w", vip, err)
	}
	return nil
}

// mendVIPs sees that just the VIPs of these frontends have an entry; have says
// which do.
func (d *DataPlane) mendVIPs(frontends map[service.Key]*held, have map[netip.Addr]bool) error {
	wanted := map[netip.Addr]bool{}
	for k := range frontends {
		wanted[k.VIP] = true
	}
	for vip := range wanted {
		if have[vip] {
			continue
		}
		if err := d.holdVIP(vip); err != nil {
			return fmt.Errorf("xdp: %w", err)
		}
	}
	for vip := range have {
		if wanted[vip] {
			continue
		}
		if err := d.removeVIP(vip); err != nil {
			return fmt.Errorf("xdp: %w", err)
		}
	}
	return nil
}
