package cni

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
)

// nic is the state of a node's NIC before a pod got it, used to restore it whatever the pod
// changed.
type nic struct {
	Name     string   `json:"name"`
	MTU      int      `json:"mtu"`
	MAC      string   `json:"mac"`
	Up       bool     `json:"up"`
	Alias    string   `json:"alias,omitempty"`
	AltNames []string `json:"altNames,omitempty"`
	// Type and Permanent distinguish it from other devices: its kind, and its permanent
	// address, which only hardware has.
	Type      string `json:"type"`
	Permanent string `json:"permanent,omitempty"`
	// Index is its index in the pod's namespace, which cannot change; 0 before it is there.
	Index int `json:"index,omitempty"`
	// Boot is the node's boot ID; the state is invalid after a reboot.
	Boot string `json:"boot"`
}

func describe(l netlink.Link) *nic {
	a := l.Attrs()
	return &nic{
		Name: a.Name, MTU: a.MTU, MAC: a.HardwareAddr.String(), Up: a.Flags&net.FlagUp != 0, Alias: a.Alias,
		AltNames: a.AltNames, Type: l.Type(), Permanent: a.PermHWAddr.String(), Boot: bootID(),
	}
}

// move moves a device from the calling thread's namespace to another and renames it, in one
// step for the kernel (net/core/rtnetlink.c, do_setlink), so that it is never visible under
// a wrong name. If the name is taken, it returns EEXIST, and the device is either in its
// old place or in the new one under its old name. Moving sets the device down.
func move(index int, to uintptr, name string) error {
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to))))
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// take moves a device of the node into a pod under the name that the runtime requests. It
// sets the alias first, so that the device is found wherever the move is interrupted.
func (c *call) take(host *netlink.Handle, l netlink.Link, p *pod) (netlink.Link, error) {
	name := l.Attrs().Name
	if err := host.LinkSetAlias(l, mark+c.id()+" "+name); err != nil {
		return nil, fmt.Errorf("device %s: alias: %w", name, err)
	}
	if err := move(l.Attrs().Index, p.ns.Fd(), c.iface); err != nil {
		return nil, fmt.Errorf("device %s into the pod as %s: %w: does another device have that name?", name, c.iface, err)
	}
	inside, err := p.links.LinkByName(c.iface)
	if err != nil {
		return nil, fmt.Errorf("device %s in the pod: %w", name, err)
	}
	return inside, nil
}

// find returns the NIC of an attachment among the links of a namespace: by its alias, or if
// the pod removed that, by properties that it cannot change. It returns nil if it is not
// there.
func (n *nic) find(h *netlink.Handle, id string, inPod bool) (netlink.Link, error) {
	all, err := netlist.Whole(h.LinkList)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(l netlink.Link) bool { of, _ := marked(l); return of == id })
	if i < 0 {
		i = slices.IndexFunc(all, func(l netlink.Link) bool {
			if l.Type() != n.Type {
				return false
			}
			return inPod && n.Index > 0 && l.Attrs().Index == n.Index || n.Permanent != "" && l.Attrs().PermHWAddr.String() == n.Permanent
		})
	}
	if i < 0 {
		return nil, nil
	}
	return all[i], nil
}

// giveBack returns a NIC from a pod, or from where the kernel put it when the pod's
// namespace ended, and restores its state. It is idempotent. If the NIC no longer exists
// (unplugged, or a virtual device that was deleted with the namespace), found is false. p
// is nil if the namespace is gone.
func (n *nic) giveBack(id string, p *pod) (found bool, err error) {
	host, err := handle()
	if err != nil {
		return false, err
	}
	defer host.Close()
	if p != nil {
		if err := n.bringHome(id, p); err != nil {
			return true, fmt.Errorf("device %s back to the node: %w", n.Name, err)
		}
	}
	var homecoming time.Duration
	if p == nil {
		homecoming = mostHomecoming
	}
	l, err := n.await(host, id, homecoming)
	if err != nil || l == nil {
		return false, err
	}
	if err := n.restore(host, l); err != nil {
		return true, fmt.Errorf("device %s as it was: %w", n.Name, err)
	}
	return true, nil
}

// mostHomecoming limits how long the kernel may take to return hardware after the last
// reference to its namespace is gone. It does so asynchronously, and late on a busy node.
const mostHomecoming = 3 * time.Second

// await is find on the node. It waits only for devices with hardware, because the kernel
// returns nothing else from a namespace that ends (net/core/dev.c,
// default_device_exit_net).
func (n *nic) await(host *netlink.Handle, id string, most time.Duration) (netlink.Link, error) {
	deadline := time.Now().Add(most)
	for {
		l, err := n.find(host, id, false)
		if err != nil || l != nil || n.Type != hardware || !time.Now().Before(deadline) {
			return l, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// hardware is the type that netlink reports for devices without a link kind.
const hardware = "device"

func (n *nic) bringHome(id string, p *pod) error {
	l, err := n.find(p.links, id, true)
	if err != nil || l == nil {
		return err
	}
	home, err := here()
	if err != nil {
		return err
	}
	defer home.Close()
	// Set the alias first: it identifies the device wherever the next steps are
	// interrupted. Then remove alternative names that the pod added: if the node has
	// another device of that name, the kernel refuses the move.
	if err := p.links.LinkSetAlias(l, mark+id+" "+n.Name); err != nil {
		return err
	}
	for _, name := range l.Attrs().AltNames {
		if !slices.Contains(n.AltNames, name) {
			if err := p.links.LinkDelAltName(l, name); err != nil {
				return err
			}
		}
	}
	err = p.run(func() error { return move(l.Attrs().Index, home.Fd(), n.Name) })
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: another device of the node has that name: rename it", err)
	}
	return err
}

// restore restores the state of a returned NIC. It resets the alias last: while the alias
// is set, the work is not done.
func (n *nic) restore(host *netlink.Handle, l netlink.Link) error {
	a := l.Attrs()
	var errs []error
	do := func(needed bool, f func() error) {
		if needed {
			errs = append(errs, f())
		}
	}
	mac, _ := net.ParseMAC(n.MAC) // the kernel's own format
	do(a.Name != n.Name, func() error {
		return errors.Join(host.LinkSetDown(l), host.LinkSetName(l, n.Name))
	})
	do(a.MTU != n.MTU, func() error { return host.LinkSetMTU(l, n.MTU) })
	do(len(mac) > 0 && !bytes.Equal(a.HardwareAddr, mac), func() error { return host.LinkSetHardwareAddr(l, mac) })
	for _, name := range a.AltNames {
		do(!slices.Contains(n.AltNames, name), func() error { return host.LinkDelAltName(l, name) })
	}
	for _, name := range n.AltNames {
		do(!slices.Contains(a.AltNames, name), func() error { return host.LinkAddAltName(l, name) })
	}
	do(n.Up, func() error { return host.LinkSetUp(l) })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return host.LinkSetAlias(l, n.Alias)
}
