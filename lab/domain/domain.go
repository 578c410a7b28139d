// Package domain builds the network of virtually dedicated networks, without anything
// that enforces them: nodes on one segment, pods, a gateway, a host outside.
//
//	a1 b1      a2 b2
//	 │ │        │ │     macvlan
//	┌┴─┴─┐    ┌─┴─┴┐
//	│ n1 │    │ n2 │    eth1: no address of their own; eth3 on the segment, too
//	└─┬──┘    └──┬─┘
//	──┴────┬─────┴──  segment
//	   ┌───┴───┐   203.0.113.0/24   ┌─────────┐
//	   │gateway├────────────────────┤ outside │
//	   └───────┘   2001:db8:9::/64  └─────────┘
package domain

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/vdn"
)

// Uplink is the nodes' device on the segment, Spare another one that can be given to a
// pod, Wide the gateway's device toward outside.
const (
	Uplink = "eth1"
	Spare  = "eth3"
	Wide   = "eth2"
	inside = "net0" // a pod's
)

// The two networks: their prefixes, gateways .1, ::1.
const (
	Science, Visitors = "science", "visitors"
)

// Prefixes returns the prefixes of a network: 1 is science, 2 visitors.
func Prefixes(network string) []netip.Prefix {
	if network == Science {
		return prefixes("10.1.0.0/24", "fd01::/64")
	}
	return prefixes("10.2.0.0/24", "fd02::/64")
}

func prefixes(text ...string) (all []netip.Prefix) {
	for _, p := range text {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// OutsideAddrs are the outside host's addresses.
var OutsideAddrs = []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:9::9")}

// Domain is a running domain.
type Domain struct {
	*lab.Lab
	Pods map[string]*Pod
}

// Pod is a host with one attachment.
type Pod struct {
	*lab.Host
	Node  *lab.Host
	Att   vdn.Attachment
	Addrs []netip.Addr // IPv4, IPv6
}

// Attach gives a pod its device, with this name and down, and returns what it is on the
// node.
type Attach func(node, pod *lab.Host, device string) (vdn.UpReport, error)

// Build creates the domain with pods a1, a2 of science and b1, b2 of visitors, each on
// the node with its number.
func Build(ctx context.Context, attach Attach) (*Domain, error) {
	l, err := lab.Build(ctx, topology())
	if err != nil {
		return nil, err
	}
	d := &Domain{Lab: l, Pods: map[string]*Pod{}}
	for name, network := range map[string]string{"a1": Science, "a2": Science, "b1": Visitors, "b2": Visitors} {
		if err := d.addPod(name, network, "n"+name[1:], attach); err != nil {
			return nil, errors.Join(fmt.Errorf("pod %s: %w", name, err), l.Close())
		}
	}
	return d, nil
}

func topology() lab.Topology {
	return lab.Topology{
		Title: "a domain of virtual networks",
		Hosts: []lab.HostSpec{
			{Name: "n1", Is: "node"}, {Name: "n2", Is: "node"},
			{Name: "gateway", Forward: true}, {Name: "outside"},
			{Name: "a1", Is: "pod"}, {Name: "a2", Is: "pod"}, {Name: "b1", Is: "pod"}, {Name: "b2", Is: "pod"},
		},
		Switches: []lab.SwitchSpec{{Name: "segment"}},
		Links: []lab.Link{
			{A: lab.At("n1", Uplink), B: lab.Port("segment")},
			{A: lab.At("n2", Uplink), B: lab.Port("segment")},
			{A: lab.At("n1", Spare), B: lab.Port("segment")},
			{A: lab.At("n2", Spare), B: lab.Port("segment")},
			{A: lab.At("gateway", Uplink, "10.1.0.1/24", "fd01::1/64", "10.2.0.1/24", "fd02::1/64"), B: lab.Port("segment")},
			{A: lab.At("gateway", Wide, "203.0.113.1/24", "2001:db8:9::1/64"),
				B: lab.At("outside", "eth0", "203.0.113.9/24", "2001:db8:9::9/64").
					Via("203.0.113.1", "10.0.0.0/8").Via("2001:db8:9::1", "fd00::/8")},
		},
	}
}

func (d *Domain) addPod(name, network, node string, attach Attach) error {
	p := &Pod{Host: d.Host(name), Node: d.Host(node)}
	up, err := attach(p.Node, p.Host, inside)
	if err != nil {
		return err
	}
	p.Att = vdn.Attachment{
		ID: name + "." + inside, Network: network, Node: node, Container: name, Interface: inside, Owner: "default/" + name,
		Device: up.Device, MAC: up.MAC, NetNS: up.NetNS, Phase: vdn.Up,
	}
	link, err := p.Netlink().LinkByName(inside)
	if err != nil {
		return err
	}
	if err := p.Netlink().LinkSetUp(link); err != nil {
		return err
	}
	for _, prefix := range Prefixes(network) {
		host := prefix.Addr().AsSlice()
		host[len(host)-1] = 10 + name[1] - '0'
		addr, _ := netip.AddrFromSlice(host)
		p.Addrs = append(p.Addrs, addr)
		p.Att.Addresses = append(p.Att.Addresses, netip.PrefixFrom(addr, prefix.Bits()))
		if err := p.address(link, netip.PrefixFrom(addr, prefix.Bits()), prefix.Addr().Next()); err != nil {
			return err
		}
	}
	d.Pods[name] = p
	return nil
}

// address gives the pod's device an address, and a default route.
func (p *Pod) address(link netlink.Link, addr netip.Prefix, gateway netip.Addr) error {
	a, err := netlink.ParseAddr(addr.String())
	if err != nil {
		return err
	}
	if err := p.Netlink().AddrAdd(link, a); err != nil {
		return fmt.Errorf("address %s: %w", addr, err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice()}
	if err := p.Netlink().RouteAdd(route); err != nil {
		return fmt.Errorf("route by %s: %w", gateway, err)
	}
	return nil
}

// Macvlan attaches a pod like fairlead-cni: with a macvlan in bridge mode on the node's
// uplink.
func Macvlan(node, pod *lab.Host, device string) (up vdn.UpReport, err error) {
	master, err := node.Netlink().LinkByName(Uplink)
	if err != nil {
		return up, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.Namespace = device, master.Attrs().Index, netlink.NsFd(pod.Namespace().FD())
	if err := node.Netlink().LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
		return up, fmt.Errorf("macvlan: %w", err)
	}
	link, err := pod.Netlink().LinkByName(device)
	if err != nil {
		return up, err
	}
	return vdn.UpReport{Device: Uplink, MAC: link.Attrs().HardwareAddr.String(), NetNS: pod.Namespace().Path()}, nil
}

// HostDevice attaches a pod like fairlead-cni on a network of whole devices: it gets the
// node's spare one.
func HostDevice(node, pod *lab.Host, device string) (up vdn.UpReport, err error) {
	nic, err := node.Netlink().LinkByName(Spare)
	if err != nil {
		return up, err
	}
	if err := node.Netlink().LinkSetNsFd(nic, pod.Namespace().FD()); err != nil {
		return up, fmt.Errorf("%s into the pod: %w", Spare, err)
	}
	inside, err := pod.Netlink().LinkByName(Spare)
	if err != nil {
		return up, err
	}
	if err := errors.Join(pod.Netlink().LinkSetDown(inside), pod.Netlink().LinkSetName(inside, device)); err != nil {
		return up, err
	}
	return vdn.UpReport{Device: Spare, MAC: inside.Attrs().HardwareAddr.String(), NetNS: pod.Namespace().Path()}, nil
}

// Plan returns the plan of a node, with the slices' settings other than their prefixes;
// science is number 1.
func (d *Domain) Plan(node string, revision uint64, science, visitors vdn.Slice) vdn.Plan {
	science.ID, science.Name, science.Prefixes = 1, Science, Prefixes(Science)
	visitors.ID, visitors.Name, visitors.Prefixes = 2, Visitors, Prefixes(Visitors)
	p := vdn.Plan{Revision: revision, Slices: []vdn.Slice{science, visitors}}
	for _, name := range []string{"a1", "a2", "b1", "b2"} {
		if pod := d.Pods[name]; pod.Node.Name() == node {
			p.Local = append(p.Local, pod.Att)
		}
	}
	return p
}
