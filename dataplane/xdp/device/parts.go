// Package device knows what matters to XDP about network devices: their parts, what their
// drivers can do, which offloads hide packets from programs, which MAC addresses they accept.
// It attaches nothing; dataplane/xdp/attach does. Computations on lists of devices are tested
// here, the rest with the program in dataplane/xdp.
package device

import (
	"errors"
	"fmt"
	"slices"
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

// Members returns a bond's members, none for other devices.
func Members(nic netlink.Link) ([]netlink.Link, error) {
	if nic.Type() != "bond" {
		return nil, nil
	}
	return parts(nic)
}

// WithParts adds an interface's parts to the reason why native XDP is impossible on it:
// their drivers decide.
func WithParts(nic netlink.Link, why error) error {
	all, err := parts(nic)
	if err != nil || len(all) == 0 {
		return errors.Join(why, err)
	}
	var ports []string
	for _, l := range all {
		ports = append(ports, fmt.Sprintf("%s (%s)", l.Attrs().Name, NativeOf(l)))
	}
	return fmt.Errorf("%w: it is a %s on %s", why, nic.Type(), strings.Join(ports, ", "))
}

// NativeOf describes whether an interface's driver has native XDP.
func NativeOf(nic netlink.Link) string {
	switch features, err := Features(nic); {
	case err != nil:
		return nic.Type()
	case features&featureBasic == 0:
		return "no native XDP"
	}
	return "native XDP"
}

// AnyVeth reports whether packets at one of these interfaces pass through a veth pair.
func AnyVeth(interfaces []string) bool {
	return slices.ContainsFunc(interfaces, func(name string) bool {
		nic, err := netlink.LinkByName(name)
		return err == nil && usesVeth(nic)
	})
}

// MTU returns the smallest MTU of these interfaces, at most 1500 and at least 576.
func MTU(interfaces []string) int {
	const least = 576
	mtu := 1500
	for _, name := range interfaces {
		if nic, err := netlink.LinkByName(name); err == nil {
			mtu = min(mtu, max(nic.Attrs().MTU, least))
		}
	}
	return mtu
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
