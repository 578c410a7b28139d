package xdp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/netlist"
)

// parts returns the interfaces of which one consists: the members of a bond, the parent
// of a VLAN.
func parts(nic netlink.Link) ([]netlink.Link, error) {
	all, err := netlist.Whole(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	var found []netlink.Link
	for _, l := range all {
		member := l.Attrs().MasterIndex == nic.Attrs().Index
		parent := nic.Attrs().ParentIndex == l.Attrs().Index && nic.Type() != "veth" // the peer is not a part
		if member || parent {
			found = append(found, l)
		}
	}
	return found, nil
}

// membersOf returns a bond's members, none for other devices.
func membersOf(nic netlink.Link) ([]netlink.Link, error) {
	if nic.Type() != "bond" {
		return nil, nil
	}
	return parts(nic)
}

// withParts adds an interface's parts to the reason why native XDP is impossible on it:
// their drivers decide.
func withParts(nic netlink.Link, why error) error {
	all, err := parts(nic)
	if err != nil || len(all) == 0 {
		return errors.Join(why, err)
	}
	var ports []string
	for _, l := range all {
		ports = append(ports, fmt.Sprintf("%s (%s)", l.Attrs().Name, nativeOf(l)))
	}
	return fmt.Errorf("%w: it is a %s on %s", why, nic.Type(), strings.Join(ports, ", "))
}

// nativeOf describes whether an interface's driver has native XDP.
func nativeOf(nic netlink.Link) string {
	switch features, err := DeviceFeatures(nic); {
	case err != nil:
		return nic.Type()
	case features&featureBasic == 0:
		return "no native XDP"
	}
	return "native XDP"
}

// usesVeth reports whether packets pass through one end of a veth pair.
func usesVeth(nic netlink.Link) bool {
	if nic.Type() == "veth" {
		return true
	}
	all, err := parts(nic)
	if err != nil {
		return false
	}
	for _, l := range all {
		if l.Type() == "veth" {
			return true
		}
	}
	return false
}
