package xdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/nodekey"
)

// putSettings changes the settings of the running program.
func (d *DataPlane) putSettings(next bpf.BalancerSettings) error {
	if err := d.kernel.Set.Set(next); err != nil {
		return fmt.Errorf("xdp: write settings: %w", err)
	}
	d.settings = next
	return nil
}

// uses counts frontends for which the program does what it spares other packets.
type uses struct {
	nat    int // checks packets from backends
	recent int // reads memory of flows before the frontend
}

// add counts a frontend n times.
func (u uses) add(h *programmed, n int) uses {
	switch h.value.Method {
	case bpf.BalancerMethodMETHOD_NAT:
		u.nat += n
	case bpf.BalancerMethodMETHOD_TUNNEL:
		if h.value.Flags&bpf.BalancerFrontendFlagsFRONTEND_STATEFUL != 0 {
			u.recent += n
		}
	}
	return u
}

// recountUses counts all frontends again.
func (d *DataPlane) recountUses(frontends map[service.Key]*programmed) error {
	var u uses
	for _, h := range frontends {
		u = u.add(h, 1)
	}
	return d.setUses(u)
}

// setUses configures the program for what frontends need.
func (d *DataPlane) setUses(u uses) error {
	next := d.settings
	next.Nat, next.Early = uint32(min(u.nat, 1)), uint8(bpf.BalancerEarlyEARLY_NOTHING)
	switch {
	case u.recent == 0:
	case d.flows.Crowded():
		next.Early = uint8(bpf.BalancerEarlyEARLY_SET)
	default:
		next.Early = uint8(bpf.BalancerEarlyEARLY_COPY)
	}
	if next != d.settings {
		if err := d.putSettings(next); err != nil {
			return err
		}
	}
	d.uses = u
	return nil
}

// SetKeys replaces the keys of authentication tags while packets flow. The data plane
// must have been opened with keys.
func (d *DataPlane) SetKeys(keys nodekey.Keys) error {
	if len(d.config.Auth.Keys) == 0 {
		return errors.New("xdp: opened without node keys: open it again with them")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := (auth.Writer{Sets: d.kernel.AuthKeySets, At: d.kernel.AuthKeysAt}).Set(keys); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	return nil
}

// ownAddresses are those in the settings.
func (c Config) ownAddresses() (all []netip.Addr) {
	for _, a := range []netip.Addr{c.SourceV4, c.SourceV6} {
		if a.IsValid() {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// admitNAT makes the program check packets from a frontend's backends for replies to
// translate.
func (d *DataPlane) admitNAT(h *programmed) {
	if h.value.Method != bpf.BalancerMethodMETHOD_NAT {
		return
	}
	for _, m := range h.members {
		d.flows.AdmitNAT(m.key.addr.Addr())
	}
}
