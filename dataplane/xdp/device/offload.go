package device

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/ethtool"
)

// Offload is what a device does to packets before a program sees them, with the ethtool
// calls that read and set it.
type Offload struct {
	name     string // short name, as in ethtool -k
	get, set uint32
	bit      uint32
}

// Generic programs run after GRO. They would see packets merged beyond the MTU, and could
// only drop them. A driver with a native program does not merge before it. VLAN tags
// stripped by a NIC are invisible to programs, and forwarded frames would lack them
// (ETH_FLAG_RXVLAN in linux/ethtool.h).
var (
	GRO  = Offload{"gro", unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO, 1}
	VLAN = Offload{"rxvlan", unix.ETHTOOL_GFLAGS, unix.ETHTOOL_SFLAGS, 1 << 8}
)

// offloadPrefix starts the names of the notes, next to the pins, of disabled offloads:
// "offload_rxvlan_eth0".
const offloadPrefix = "offload_"

func (o Offload) note(nic string) string { return offloadPrefix + o.name + "_" + PinWord(nic) }

// TurnOff disables an offload if it is enabled, and records that next to the pins.
func (o Offload) TurnOff(pins *bpffs.Dir, nic string) error {
	value, err := ethtool.CallValue(nic, o.get, 0)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && value&o.bit == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", o.name, err)
	}
	// The note comes first: without one the offload would stay disabled.
	note := pins.Path(o.note(nic))
	if err := os.Symlink(nic, note); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("record that %s was on: %w", o.name, err)
	}
	if _, err := ethtool.CallValue(nic, o.set, value&^o.bit); err != nil {
		return errors.Join(fmt.Errorf("turn %s off: %w", o.name, err), os.Remove(note))
	}
	return nil
}

// turnOn enables an offload again that was disabled on an interface no longer used.
func (o Offload) turnOn(pins *bpffs.Dir, nic string) error {
	if _, err := os.Readlink(pins.Path(o.note(nic))); err != nil {
		return nil // there is no note
	}
	value, err := ethtool.CallValue(nic, o.get, 0)
	if err == nil {
		_, err = ethtool.CallValue(nic, o.set, value|o.bit)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("xdp: interface %s: turn %s on again: %w", nic, o.name, err)
	}
	return pins.Remove(o.note(nic))
}

// ShowVLANs makes all VLAN tags visible to the program on an interface, or returns why it
// cannot. A bond's members are the ones that receive.
func ShowVLANs(pins *bpffs.Dir, nic netlink.Link) (reason string, err error) {
	members, err := Members(nic)
	if err != nil {
		return "", err
	}
	for _, l := range append(members, nic) {
		name := l.Attrs().Name
		if err := VLAN.TurnOff(pins, name); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Sprintf("%s hides VLAN tags, and this cannot be disabled", name), nil
		} else if err != nil {
			return "", err
		}
	}
	return "", nil
}

// RestoreOffloads enables everything again that was disabled for one interface, and for a
// bond's members.
func RestoreOffloads(pins *bpffs.Dir, name string) error {
	names := []string{name}
	if nic, err := netlink.LinkByName(name); err == nil {
		members, err := Members(nic)
		if err != nil {
			return err
		}
		for _, l := range members {
			names = append(names, l.Attrs().Name)
		}
	}
	var errs []error
	for _, n := range names {
		errs = append(errs, GRO.turnOn(pins, n), VLAN.turnOn(pins, n))
	}
	return errors.Join(errs...)
}

// RestoreAll enables all offloads again that are recorded as disabled among the pins.
func RestoreAll(pins *bpffs.Dir) error {
	notes, err := pins.Names(offloadPrefix)
	errs := []error{err}
	for _, note := range notes {
		nic, err := os.Readlink(pins.Path(note))
		errs = append(errs, err, GRO.turnOn(pins, nic), VLAN.turnOn(pins, nic))
	}
	return errors.Join(errs...)
}

// PinWord is an interface's name as a part of a pin name: the BPF file system allows no
// dots, interfaces no slashes.
func PinWord(nic string) string { return strings.ReplaceAll(nic, ".", ":") }
