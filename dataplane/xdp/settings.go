package xdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/internal/nodekey"
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

// SetKeys replaces the keys of authentication tags while packets flow. It needs a data
// plane that was opened with keys.
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

// ownAddresses are those that the settings have.
func (c Config) ownAddresses() (all []netip.Addr) {
	for _, a := range []netip.Addr{c.SourceV4, c.SourceV6} {
		if a.IsValid() {
			all = append(all, a.Unmap())
		}
	}
	return all
}
