package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/vdn"
)

// Add creates a pod's device, or leaves nothing behind. It first removes what an
// interrupted ADD for the same interface left. It rejects an interface whose ADD has
// completed.
func Add(args *skel.CmdArgs) (*current.Result, error) {
	c, err := newADD(args, Parse)
	if err != nil {
		return nil, err
	}
	if c.Previous != nil {
		return nil, invalid("prevResult: fairlead-cni creates the interface: put it first in the chain")
	}
	p, err := openPod(c.netns)
	if err != nil {
		return nil, gone(c.netns, err)
	}
	defer p.close()
	if p.isAt(ownNamespace) {
		return nil, fail(types.ErrInvalidNetNS, "CNI_NETNS %s: this is the node's own namespace: pods need their own", c.netns)
	}
	ctx, cancel := c.deadline()
	defer cancel()
	c.settle(ctx)
	if err := c.afresh(p); err != nil {
		return nil, err
	}
	result, err := c.attach(ctx, p)
	if err == nil {
		err = p.stillThere()
	}
	if err != nil {
		return nil, c.undo(p, err)
	}
	return result, nil
}

// afresh removes what an interrupted ADD left.
func (c *call) afresh(p *pod) error {
	n := c.noteOr(note{ID: c.id()})
	if n.Whole && c.free(p) != nil {
		return c.twice()
	}
	if err := c.takeAway(n, p); err != nil {
		return err
	}
	return c.free(p)
}

func (c *call) twice() error {
	return fail(ErrTaken, "CNI_CONTAINERID, CNI_IFNAME: attachment %s exists already: call DEL before another ADD", c.id())
}

// whole records that an ADD completed.
func (c *call) whole() error {
	n := c.noteOr(c.note())
	n.Whole = true
	return c.notes.write(attached, n)
}

// noteOr returns the node's note of the attachment, or none if there is no note.
func (c *call) noteOr(none note) note {
	if n := c.notes.read(attached, c.id()); n != nil {
		return *n
	}
	return none
}

// undo removes everything that a failed ADD made, and returns why the ADD failed.
func (c *call) undo(p *pod, why error) error {
	if err := c.takeAway(c.noteOr(note{ID: c.id()}), p); err != nil {
		return fail(types.ErrInternal, "%v; rollback failed: %v: DEL retries it", why, err) // the note remains for DEL
	}
	c.forget()
	if err := p.stillThere(); err != nil {
		return err
	}
	return why
}

// forget releases what a failed ADD may have leased.
func (c *call) forget() {
	if c.notes.read(attached, c.id()) == nil {
		return // no lease was requested
	}
	if err := c.release(); err != nil {
		c.say("undoing: %v", err)
	}
}

// attach does the work of ADD. It records each object before it creates it.
func (c *call) attach(ctx context.Context, p *pod) (*current.Result, error) {
	host, err := handle()
	if err != nil {
		return nil, err
	}
	defer host.Close()
	lease, err := c.lease(ctx, host)
	if err != nil {
		return nil, err
	}
	link, err := c.device(host, p, lease)
	if err != nil {
		return nil, err
	}
	result := c.result(lease)
	if err := c.configure(p, link, result); err != nil {
		return nil, err
	}
	mac := link.Attrs().HardwareAddr.String()
	report := vdn.UpReport{Device: lease.Attachment.Device, MAC: mac, NetNS: c.netns}
	if err := c.up(ctx, report); err != nil {
		return nil, err
	}
	result.Interfaces = []*current.Interface{{Name: c.iface, Mac: mac, Mtu: link.Attrs().MTU, Sandbox: c.netns}}
	for _, ip := range result.IPs {
		ip.Interface = current.Int(0)
	}
	return result, c.whole()
}

// up reports the device to the controller and waits until the node enforces the network.
func (c *call) up(ctx context.Context, report vdn.UpReport) error {
	if n := c.inherited(); n != nil {
		ctx, cancel := c.deadline() // the controllers may have used up the deadline
		defer cancel()
		if err := c.adopted(ctx, n, report); err != nil {
			return err
		}
		return c.applied(ctx)
	} else if _, err := c.vdn.Up(ctx, c.id(), report); err != nil {
		return c.refused(err)
	}
	return c.applied(ctx)
}

// lease requests the attachment.
func (c *call) lease(ctx context.Context, host *netlink.Handle) (vdn.Lease, error) {
	network, err := c.vdn.Network(ctx, c.Network)
	if err != nil {
		return c.inherit(host, err)
	}
	devices, err := c.devices(host, network)
	if err != nil {
		return vdn.Lease{}, err
	}
	lease, err := c.request(ctx, devices)
	if err != nil {
		return vdn.Lease{}, err
	}
	if lease.Attachment.Device == "" {
		lease.Attachment.Device = devices[0]
	}
	return lease, nil
}

// request records that a lease may exist, and requests it.
func (c *call) request(ctx context.Context, devices []string) (vdn.Lease, error) {
	if err := c.notes.write(attached, c.note()); err != nil {
		return vdn.Lease{}, err
	}
	lease, err := c.vdn.Attach(ctx, vdn.AttachmentRequest{
		Network: c.Network, Node: c.Node, Container: c.container, Interface: c.iface, Owner: c.pod.owner, OwnerUID: c.pod.uid,
		Addresses: c.addresses, Devices: devices,
	})
	if err != nil {
		return vdn.Lease{}, c.refused(err)
	}
	if len(lease.Attachment.Addresses) == 0 {
		return vdn.Lease{}, fail(types.ErrInternal, "network %s: the lease has no address: add a subnet to the network", c.Network)
	}
	n := c.note()
	n.Lease = &lease
	// This lease replaces the release that was owed.
	return lease, errors.Join(c.notes.write(attached, n), c.notes.remove(owed, c.id()))
}

// note returns what is known of an attachment before it is leased, with the lease if it is
// already recorded.
func (c *call) note() note {
	if n := c.notes.read(attached, c.id()); n != nil {
		return note{ID: n.ID, Conf: c.Name, Network: c.Network, Controller: c.Controller, NetNS: c.netns, Lease: n.Lease, Replaces: n.Replaces}
	}
	return note{ID: c.id(), Conf: c.Name, Network: c.Network, Controller: c.Controller, NetNS: c.netns}
}

// device creates or moves the pod's device and sets its MTU and MAC address.
func (c *call) device(host *netlink.Handle, p *pod, lease vdn.Lease) (netlink.Link, error) {
	mac := c.mac
	if lease.Network.Mode != vdn.HostDevice {
		if mac == nil {
			mac = macFor(c.Network, lease.Attachment.Addresses)
		}
		noted := c.note()
		noted.MAC = mac.String()
		if err := c.notes.write(attached, noted); err != nil {
			return nil, err
		}
		return c.macvlan(host, p, lease.Attachment.Device, lease.Network, mac)
	}
	link, err := c.hostDevice(host, p, lease.Attachment.Device)
	if err != nil {
		return nil, err
	}
	return adjusted(p, link, lease.Network.MTU, mac)
}

// hostDevice records the NIC, moves it into the pod, and records its index there.
func (c *call) hostDevice(host *netlink.Handle, p *pod, name string) (netlink.Link, error) {
	l, err := host.LinkByName(name)
	if err != nil {
		return nil, fail(ErrNode, "network %s: device %s of node %s: %v", c.Network, name, c.Node, err)
	}
	noted := c.note()
	noted.NIC = describe(l)
	if err := c.notes.write(attached, noted); err != nil {
		return nil, err
	}
	inside, err := c.take(host, l, p)
	if err != nil {
		return nil, err
	}
	noted.NIC.Index = inside.Attrs().Index
	return inside, c.notes.write(attached, noted)
}

// adjusted sets the network's MTU and the requested MAC address on a NIC.
func adjusted(p *pod, l netlink.Link, mtu int, mac net.HardwareAddr) (netlink.Link, error) {
	name := l.Attrs().Name
	if mtu > 0 {
		if err := p.links.LinkSetMTU(l, mtu); err != nil {
			return nil, fail(ErrNode, "interface %s: MTU %d: %v: not supported by the NIC: lower the mtu of the network", name, mtu, err)
		}
	}
	if mac != nil {
		if err := p.links.LinkSetHardwareAddr(l, mac); err != nil {
			return nil, fail(ErrNode, "interface %s: MAC %s: %v: not supported by the NIC", name, mac, err)
		}
	}
	now, err := p.links.LinkByIndex(l.Attrs().Index)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	return now, nil
}

// prefixes returns the addresses of a result.
func prefixes(r *current.Result) (all []netip.Prefix) {
	for _, ip := range r.IPs {
		ones, _ := ip.Address.Mask.Size()
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			all = append(all, netip.PrefixFrom(a.Unmap(), ones))
		}
	}
	return all
}
