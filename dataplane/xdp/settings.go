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

// countNAT makes the program check packets from backends while, and only while, some
// frontend uses nat.
func (d *DataPlane) countNAT(h *programmed, more int) error {
	if h.value.Method != bpf.BalancerMethodMETHOD_NAT {
		return nil
	}
	return d.setNATs(d.nats + more)
}

func (d *DataPlane) recountNAT(frontends map[service.Key]*programmed) error {
	n := 0
	for _, h := range frontends {
		if h.value.Method == bpf.BalancerMethodMETHOD_NAT {
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
