package cni

import (
	"errors"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/vdn"
)

// Status reports whether an ADD could succeed: the controller responds, as does the node's
// daemon if there is one, and the network and its device exist.
func Status(args *skel.CmdArgs) error {
	c, err := newCall(args, Parse)
	if err == nil {
		err = c.named()
	}
	if err != nil {
		return err
	}
	network, err := c.available()
	if err != nil {
		return err
	}
	return c.present(network)
}

// available checks that the controller and the node's daemon respond.
func (c *call) available() (vdn.Network, error) {
	ctx, cancel := c.deadline()
	defer cancel()
	if err := c.daemonAnswers(); err != nil {
		return vdn.Network{}, fail(types.ErrPluginNotAvailable, "%v", err)
	}
	err := c.vdn.Health(ctx)
	if err == nil {
		c.settle(ctx)
		var network vdn.Network
		if network, err = c.vdn.Network(ctx, c.Network); err == nil {
			return network, nil
		}
	}
	var no *types.Error
	if errors.As(c.refused(err), &no) {
		return vdn.Network{}, fail(types.ErrPluginNotAvailable, "%s", no.Msg)
	}
	return vdn.Network{}, err
}

// present checks that a network has a device on this node, free or not. NICs that pods use
// are not a fault of the node.
func (c *call) present(n vdn.Network) error {
	host, err := handle()
	if err != nil {
		return err
	}
	defer host.Close()
	all, err := netlist.Whole(host.LinkList)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, l := range all {
		there[l.Attrs().Name] = true
	}
	for _, other := range c.notes.all(attached) {
		if other.NIC != nil {
			there[other.NIC.Name] = true
		}
	}
	if !slices.ContainsFunc(n.Devices, func(d string) bool { return there[d] }) {
		return fail(types.ErrLimitedConnectivity, "network %s: node %s has none of its devices (%q): add one, or correct the devices of the network", n.Name, c.Node, n.Devices)
	}
	if n.Mode == vdn.HostDevice {
		return nil
	}
	return c.usableNow(host, n)
}

// usableNow returns why no macvlan device can be created.
func (c *call) usableNow(host *netlink.Handle, n vdn.Network) error {
	_, err := c.devices(host, n)
	var no *types.Error
	if errors.As(err, &no) {
		return fail(types.ErrLimitedConnectivity, "%s", no.Msg)
	}
	return err
}
