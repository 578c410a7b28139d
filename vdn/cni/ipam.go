package cni

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fairlead/fairlead/vdn"
)

// AddAddresses returns a lease's addresses, routes and DNS to another plugin.
func AddAddresses(args *skel.CmdArgs) (*current.Result, error) {
	c, err := newADD(args, ParseIPAM)
	if err != nil {
		return nil, err
	}
	if n := c.notes.read(attached, c.id()); n != nil && n.Whole && n.NetNS == c.netns {
		return nil, c.twice() // before the caller fails and releases the lease
	}
	ctx, cancel := c.deadline()
	defer cancel()
	c.settle(ctx)
	result, err := c.leased(ctx)
	if err != nil {
		c.forget()
		return nil, err
	}
	return result, nil
}

// leased requests the lease and reports its device.
func (c *call) leased(ctx context.Context) (*current.Result, error) {
	network, err := c.vdn.Network(ctx, c.Network)
	if err != nil {
		return nil, c.refused(err)
	}
	if err := addressesAlone(network); err != nil {
		return nil, err
	}
	lease, err := c.request(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := c.reportUp(ctx); err != nil {
		return nil, err
	}
	return c.result(lease), c.whole()
}

// addressesAlone returns why a network cannot lease only addresses.
func addressesAlone(n vdn.Network) error {
	if n.Mode == vdn.HostDevice {
		return invalid("network %s gives whole NICs (host-device), which fairlead-ipam cannot: use \"type\": \"fairlead-cni\"", n.Name)
	}
	return nil
}

// reportUp reports the device to the controller if the calling plugin creates it before it
// requests addresses, as the known plugins do.
func (c *call) reportUp(ctx context.Context) error {
	p, err := openPod(c.netns)
	if errors.Is(err, errGone) {
		return vanished(c.netns)
	}
	if err != nil {
		return err
	}
	defer p.close()
	l, err := p.links.LinkByName(c.iface)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	host, err := handle()
	if err != nil {
		return err
	}
	defer host.Close()
	report := vdn.UpReport{Device: deviceOf(host, l), MAC: l.Attrs().HardwareAddr.String(), NetNS: c.netns}
	if _, err := c.vdn.Up(ctx, c.id(), report); err != nil {
		return c.refused(err)
	}
	return c.applied(ctx)
}

// DelAddresses releases the lease.
func DelAddresses(args *skel.CmdArgs) error {
	c, err := newCall(args, ParseIPAM)
	if err != nil {
		return err
	}
	return c.release()
}

// CheckAddresses checks that the lease still exists with the addresses that ADD returned;
// see Check.
func CheckAddresses(args *skel.CmdArgs) error {
	c, err := newCall(args, ParseIPAM)
	if err != nil {
		return err
	}
	if c.Previous == nil {
		return invalid("prevResult is required: pass the result of ADD")
	}
	ctx, cancel := c.brief()
	defer cancel()
	return c.sameLease(ctx)
}

// GCAddresses releases leases whose attachments the runtime no longer has.
func GCAddresses(args *skel.CmdArgs) error {
	c, err := newCall(args, ParseIPAM)
	if err != nil {
		return err
	}
	return c.collect()
}

// StatusAddresses reports whether an ADD could succeed: the controller responds and the
// network can lease addresses.
func StatusAddresses(args *skel.CmdArgs) error {
	c, err := newCall(args, ParseIPAM)
	if err != nil {
		return err
	}
	network, err := c.available()
	if err != nil {
		return err
	}
	return addressesAlone(network)
}
