package cni

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce/wire"
)

// devices returns the network's devices that this node can use for an attachment, in the
// network's order, or an error that says why it can use none.
func (c *call) devices(host *netlink.Handle, n vdn.Network) (free []string, err error) {
	var why []string
	for _, name := range n.Devices {
		l, err := host.LinkByName(name)
		if err == nil {
			err = usable(host, n, l)
		} else if absent(err) {
			err = fmt.Errorf("there is no device %s%s", name, c.givenTo(name))
		}
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		free = append(free, name)
	}
	if len(free) > 0 {
		return free, nil
	}
	return nil, fail(ErrNode, "network %s: node %s has none of its devices for a pod: %s", n.Name, c.Node, strings.Join(why, "; "))
}

// givenTo returns which pod has a NIC, if this node knows.
func (c *call) givenTo(name string) string {
	for _, other := range c.notes.all(attached) {
		if other.NIC != nil && other.NIC.Name == name {
			return " free: attachment " + other.ID + " has it"
		}
	}
	return ""
}

// usable returns why a device cannot serve a network.
func usable(host *netlink.Handle, n vdn.Network, l netlink.Link) error {
	a := l.Attrs()
	if n.Mode == vdn.HostDevice {
		if err := notInUse(host, l); err != nil || n.GuaranteedRate == 0 {
			return err
		}
		return wire.Guarantees(l, n.GuaranteedRate)
	}
	switch {
	case a.Flags&net.FlagUp == 0:
		return fmt.Errorf("device %s is down: ip link set %s up", a.Name, a.Name)
	case n.MTU > a.MTU:
		return fmt.Errorf("device %s has MTU %d, and the network wants %d: raise the one, or lower the other", a.Name, a.MTU, n.MTU)
	}
	return nil
}

// notInUse rejects devices that the node itself uses.
func notInUse(host *netlink.Handle, l netlink.Link) error {
	a := l.Attrs()
	if id, _ := marked(l); id != "" {
		return fmt.Errorf("device %s was not given back by attachment %s: delete that", a.Name, id)
	}
	if a.MasterIndex != 0 {
		return fmt.Errorf("device %s is part of another (bridge, bond): take it out", a.Name)
	}
	addresses, err := netlist.Whole(func() ([]netlink.Addr, error) { return host.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if address.Scope == unix.RT_SCOPE_UNIVERSE {
			return fmt.Errorf("device %s has the node's address %s: take it off", a.Name, address.IP)
		}
	}
	return nil
}

// macFor derives a macvlan device's MAC address from its IP address, unless another is
// requested, so that neighbor entries stay valid when another pod gets the IP address.
func macFor(network string, addresses []netip.Prefix) net.HardwareAddr {
	sum := sha256.Sum256([]byte(network + "/" + addresses[0].Addr().String()))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^1 | 2 // individual, locally administered (IEEE 802, section 8)
	return mac
}

// macvlan creates a device in the pod on top of the node's device.
func (c *call) macvlan(host *netlink.Handle, p *pod, on string, n vdn.Network, mac net.HardwareAddr) (netlink.Link, error) {
	lower, err := host.LinkByName(on)
	if err != nil {
		return nil, fail(ErrNode, "network %s: device %s of node %s: %v", n.Name, on, c.Node, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.ParentIndex = c.iface, n.MTU, lower.Attrs().Index
	attrs.HardwareAddr, attrs.Namespace = mac, netlink.NsFd(p.ns.Fd())
	err = host.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE})
	if err != nil {
		return nil, fmt.Errorf("network %s: macvlan device %s on %s: %w: does the kernel have macvlan, and is %s Ethernet, in no bridge?", n.Name, c.iface, on, err, on)
	}
	made, err := p.links.LinkByName(c.iface)
	if err != nil {
		return nil, fmt.Errorf("macvlan device %s in the pod: %w", c.iface, err)
	}
	// The kernel accepts no alias when it creates a link. Until the alias is set, the MAC
	// address in the note identifies the link.
	return made, p.links.LinkSetAlias(made, mark+c.id())
}

// ours reports whether a link of a pod was created for an attachment.
func (n note) ours(l netlink.Link) bool {
	if id, _ := marked(l); id == n.ID {
		return true
	}
	return l.Type() == "macvlan" && n.MAC != "" && l.Attrs().HardwareAddr.String() == n.MAC
}

// takeAway removes whatever an attachment has in the kernel. p is nil if its namespace is
// gone.
func (c *call) takeAway(n note, p *pod) error {
	if n.NIC != nil {
		found, err := n.NIC.giveBack(n.ID, p)
		if err == nil && !found {
			c.say("device %s is nowhere: it was taken out, or died with the pod's namespace", n.NIC.Name)
		}
		return err
	}
	if p != nil {
		if err := n.clear(p.links, p); err != nil {
			return err
		}
	}
	host, err := handle()
	if err != nil {
		return err
	}
	defer host.Close()
	return n.clear(host, nil)
}

// clear removes devices that are identified by their alias or MAC address, in a pod, or on
// the node if p is nil.
func (n note) clear(where *netlink.Handle, p *pod) error {
	all, err := netlist.Whole(where.LinkList)
	if err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	for _, l := range all {
		id, name := marked(l)
		switch {
		case id == n.ID && name != "": // a NIC whose note is lost
			left := describe(l)
			left.Name, left.Alias, left.AltNames = name, "", nil
			_, err = left.giveBack(n.ID, p)
		case p == nil || !n.ours(l):
			continue
		default:
			err = p.links.LinkDel(l)
		}
		if err != nil && !absent(err) {
			return fmt.Errorf("device %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

// free returns an error if the interface name is in use in the pod.
func (c *call) free(p *pod) error {
	l, err := p.links.LinkByName(c.iface)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fail(ErrTaken, "CNI_IFNAME: the pod has an interface %s (%s) already, which is not this plugin's: use another name, or put fairlead-cni first in the chain", c.iface, l.Type())
}

// gone converts the absence of a namespace to an error of the specification.
func gone(path string, err error) error {
	if errors.Is(err, errGone) {
		return vanished(path)
	}
	return fail(types.ErrInvalidNetNS, "netns %s: %v", path, err)
}

// deviceOf returns the node's device below a pod's device, by its index on the node.
func deviceOf(host *netlink.Handle, l netlink.Link) string {
	if below, err := host.LinkByIndex(l.Attrs().ParentIndex); err == nil {
		return below.Attrs().Name
	}
	return l.Attrs().Name
}

// first returns the first match.
func first[T any](all []T, is func(T) bool) (T, bool) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	var none T
	return none, false
}
