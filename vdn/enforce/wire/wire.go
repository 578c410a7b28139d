// Package wire determines whether a host device that is assigned to one pod can guarantee
// a rate by itself: no other device may share its link, and the link must be fast enough.
// Such a link needs no enforcement. vdn/enforce/kernel handles slices that share an
// uplink.
package wire

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/ethtool"
	"github.com/fairlead/fairlead/vdn"
)

// ErrUnknown is wrapped for a device that does not report its rate, permanently or while it
// has no carrier.
var ErrUnknown = errors.New("it does not report the rate of its wire")

// Guarantees returns an error if a device of the calling thread's network namespace cannot
// guarantee a rate to its only user.
func Guarantees(l netlink.Link, rate vdn.Rate) error {
	name := l.Attrs().Name
	if with := sharedWith(l); with != "" {
		return fmt.Errorf("device %s shares the wire of %s, so a guaranteed rate of %s is impossible: use a device with its own link, mode macvlan, or no guaranteedRate", name, with, rate)
	}
	speed, err := Speed(name)
	switch {
	case err != nil:
		return fmt.Errorf("device %s: %w, so a guaranteed rate of %s cannot be verified: set the device up and connect it, set its speed (ethtool -s %s speed MBITS), or remove guaranteedRate",
			name, err, rate, name)
	case speed < rate:
		return fmt.Errorf("device %s carries %s, but guaranteedRate of the network is %s: use a faster device, or lower guaranteedRate", name, speed, rate)
	}
	return nil
}

// sharedWith names the device whose link a device uses; "" if the link is its own.
func sharedWith(l netlink.Link) string {
	a := l.Attrs()
	if a.ParentIndex != 0 && l.Type() != "veth" {
		if below, err := netlink.LinkByIndex(a.ParentIndex); err == nil {
			return below.Attrs().Name
		}
		return "the device below it"
	}
	// An SR-IOV virtual function.
	device := filepath.Join("/sys/bus", a.ParentDevBus, "devices", a.ParentDev)
	if of, err := os.Readlink(filepath.Join(device, "physfn")); a.ParentDev != "" && err == nil {
		return "PCI device " + filepath.Base(of)
	}
	return ""
}

// settings is struct ethtool_cmd (linux/ethtool.h).
type settings struct {
	command, _, _ uint32
	speed         uint16
	_             [6]uint8 // duplex, port, phy_address, transceiver, autoneg, mdio_support
	_             [2]uint32
	speedHigh     uint16
	_             [2]uint8 // eth_tp_mdix, eth_tp_mdix_ctrl
	_             [3]uint32
}

// Speed returns the rate of a device's link as its driver reports it.
func Speed(device string) (vdn.Rate, error) {
	s := settings{command: unix.ETHTOOL_GSET}
	if err := ethtool.Call(device, &s); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	megabits := uint32(s.speedHigh)<<16 | uint32(s.speed)
	if megabits == 0 || megabits == math.MaxUint32 {
		return 0, ErrUnknown
	}
	return vdn.Rate(megabits) * 1_000_000, nil
}
