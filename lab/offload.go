package lab

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/ethtool"
	"github.com/fairlead/fairlead/lab/netns"
)

// setOffloads sets the offloads of an end as in the topology.
func setOffloads(ns *netns.NS, e End) error {
	if !e.TxChecksumOff && !e.GRO {
		return nil
	}
	return ns.Do(func() error {
		if e.TxChecksumOff {
			if _, err := ethtool.CallValue(e.Dev, unix.ETHTOOL_STXCSUM, 0); err != nil {
				return fmt.Errorf("tx checksum offload off: %w", err)
			}
		}
		if e.GRO {
			if _, err := ethtool.CallValue(e.Dev, unix.ETHTOOL_SGRO, 1); err != nil {
				return fmt.Errorf("GRO on: %w", err)
			}
		}
		return nil
	})
}

// Offload turns an interface's transmit offloads on or off. With them the kernel passes
// on up to 64 KiB as one packet and leaves checksums incomplete; without them, packets of
// the MTU with complete checksums, as to a device that supports neither.
func (h *Host) Offload(dev string, on bool) error {
	return h.Do(func() error {
		value := uint32(0)
		if on {
			value = 1
		}
		// Segmentation needs checksums: they are turned on first, and the kernel turns
		// segmentation off with checksums.
		for _, cmd := range []uint32{unix.ETHTOOL_STXCSUM, unix.ETHTOOL_SGSO, unix.ETHTOOL_STSO} {
			if _, err := ethtool.CallValue(dev, cmd, value); err != nil {
				return fmt.Errorf("host %s: %s: offloads: %w", h.Name(), dev, err)
			}
		}
		return nil
	})
}

// TxChecksumOff makes the kernel complete checksums before a packet leaves a device, like
// an End with that setting.
func TxChecksumOff(ns *netns.NS, device string) error {
	return setOffloads(ns, End{Dev: device, TxChecksumOff: true})
}
