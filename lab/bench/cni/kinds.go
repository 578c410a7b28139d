package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench/tunnel"
	"github.com/fairlead/fairlead/lab/multisite"
)

// Kinds of networks that a pod can be attached to.
const (
	Host       = "host"
	Macvlan    = "macvlan"
	HostDevice = "host-device"
	HostGW     = "bridge+host-gw"
	VXLAN      = "bridge+vxlan"
	TunUDP     = "tun+udp"
)

// Kinds that only case wan has: what the packets of a pod to a server outside pass with
// Weave Net (a bridge) and Calico (routes without a bridge), with their default MTUs.
const (
	Weave  = "bridge of Weave Net"
	Calico = "routes of Calico"
)

// Kinds contains all kinds. The first is the floor.
var Kinds = []string{Host, Macvlan, HostDevice, HostGW, VXLAN, TunUDP}

// behind contains the kinds whose pods are attached to a bridge on the node, with the
// bridge's number. They correspond to flannel's backends host-gw, vxlan and udp.
var behind = map[string]int{HostGW: 0, VXLAN: 1, TunUDP: 2, Weave: 3}

// mtus contains the MTUs of their pods: 1500 bytes less the encapsulation overhead.
var mtus = map[string]int{HostGW: 1500, VXLAN: 1500 - 50, TunUDP: 1500 - 28, Weave: 1376, Calico: 1440}

const (
	podDev    = "eth0"
	vxlanDev  = "flannel.1"
	vxlanPort = 8472 // the port of flannel, and of Linux before IANA assigned 4789
	tunDev    = "flannel0"
	tunPort   = 8285 // flannel's port
)

// place is where a pod runs, or the host that is measured instead.
type place struct {
	host *lab.Host
	addr netip.Addr
}

// network contains pods of every kind at both sites.
type network struct {
	*multisite.Sites
	o Options
	// settle is how long a transfer runs before it is measured.
	settle time.Duration
	// from contains Daejeon's pods by kind, to contains Busan's.
	from, to map[string]place
	// forwarders contains the TunUDP processes.
	forwarders map[*multisite.Site]tunnel.Process
	// controllers contains the controllers that the plugin queries.
	controllers map[*multisite.Site]*controller
}

// newNetwork builds the sites with a pod of every kind at each of them, and with a delay
// between them.
func newNetwork(ctx context.Context, o Options, delay time.Duration) (*network, error) {
	s, err := multisite.NewDelayed(ctx, delay)
	if err != nil {
		return nil, err
	}
	n := &network{Sites: s, o: o, settle: warmUp, from: map[string]place{}, to: map[string]place{}, forwarders: map[*multisite.Site]tunnel.Process{}, controllers: map[*multisite.Site]*controller{}}
	for site, places := range map[*multisite.Site]map[string]place{s.Daejeon: n.from, s.Busan: n.to} {
		if err := n.populate(ctx, site, places); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", site.Name, err), s.Close())
		}
	}
	return n, nil
}

// populate creates a site's pods.
func (n *network) populate(ctx context.Context, site *multisite.Site, places map[string]place) (err error) {
	if err := n.bridges(ctx, site); err != nil {
		return err
	}
	if n.o.Plugin != "" {
		if n.controllers[site], err = n.startController(ctx, site); err != nil {
			return err
		}
	}
	for _, kind := range Kinds {
		if places[kind], err = n.pod(ctx, site, kind); err != nil {
			return fmt.Errorf("pod of %s: %w", kind, err)
		}
	}
	return nil
}

// pod creates the pod of a kind. For Host it is the node itself.
func (n *network) pod(ctx context.Context, site *multisite.Site, kind string) (place, error) {
	name := site.Name + "-" + kind
	switch {
	case kind == Host:
		return place{n.Lab.Host(site.Node), site.NodeAddr}, nil
	case (kind == Macvlan || kind == HostDevice) && n.o.Plugin != "":
		return n.plugged(ctx, site, kind, name)
	case kind == Macvlan:
		return n.direct(ctx, site, name, site.OnNode(), addMacvlan)
	case kind == HostDevice:
		return n.direct(ctx, site, name, site.OnSpare(), giveDevice)
	}
	return n.bridged(ctx, site, kind, name, firstPod, false)
}

// firstPod is the last byte of the first pod's address.
const firstPod = 10

// direct creates a pod that gets one of the node's devices, or a device on top of one.
func (n *network) direct(ctx context.Context, site *multisite.Site, name string, subnet netip.Prefix, wire func(node, pod *lab.Host) error) (place, error) {
	if err := n.Lab.Add(ctx, lab.Topology{Hosts: []lab.HostSpec{{Name: name, Is: "pod"}}}); err != nil {
		return place{}, err
	}
	p := place{n.Lab.Host(name), multisite.Nth(subnet, firstPod)}
	if err := wire(n.Lab.Host(site.Node), p.host); err != nil {
		return p, err
	}
	h := p.host.Netlink()
	dev, err := h.LinkByName(podDev)
	if err != nil {
		return p, err
	}
	if err := h.AddrAdd(dev, &netlink.Addr{IPNet: lab.IPNet(netip.PrefixFrom(p.addr, subnet.Bits()))}); err != nil {
		return p, err
	}
	if err := h.LinkSetUp(dev); err != nil {
		return p, err
	}
	return p, h.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Gw: multisite.Nth(subnet, 1).AsSlice()})
}

// addMacvlan adds a macvlan device on the node's device to a pod, as the reference plugin
// macvlan does.
func addMacvlan(node, pod *lab.Host) error {
	parent, err := node.Netlink().LinkByName(multisite.NodeDev)
	if err != nil {
		return err
	}
	return node.Netlink().LinkAdd(&netlink.Macvlan{
		LinkAttrs: netlink.LinkAttrs{
			Name: podDev, ParentIndex: parent.Attrs().Index, TxQLen: -1, Namespace: netlink.NsFd(pod.Namespace().FD()),
		},
		Mode: netlink.MACVLAN_MODE_BRIDGE,
	})
}

// giveDevice moves the node's spare device into a pod, as the reference plugin
// host-device does.
func giveDevice(node, pod *lab.Host) error {
	dev, err := node.Netlink().LinkByName(multisite.SpareDev)
	if err != nil {
		return err
	}
	if err := node.Netlink().LinkSetDown(dev); err != nil {
		return err
	}
	if err := node.Netlink().LinkSetNsFd(dev, pod.Namespace().FD()); err != nil {
		return err
	}
	if dev, err = pod.Netlink().LinkByName(multisite.SpareDev); err != nil {
		return err
	}
	return pod.Netlink().LinkSetName(dev, podDev)
}

// bridges creates the bridges of a site's node and the routes to those of the other site.
func (n *network) bridges(ctx context.Context, site *multisite.Site) error {
	node := n.Lab.Host(site.Node)
	for kind, i := range behind {
		if err := addBridge(node.Netlink(), bridgeOf(kind), mtus[kind], multisite.Nth(site.Bridge(i), 1)); err != nil {
			return fmt.Errorf("bridge of %s: %w", kind, err)
		}
	}
	other := n.Busan
	if site == n.Busan {
		other = n.Daejeon
	}
	if err := addVXLAN(node.Netlink(), site, other); err != nil {
		return fmt.Errorf("VXLAN: %w", err)
	}
	if err := n.addTun(ctx, node, site, other); err != nil {
		return fmt.Errorf("tun: %w", err)
	}
	return nil // host-gw: the gateways route to the nodes
}

// bridgeOf returns the name of a kind's bridge on the nodes.
func bridgeOf(kind string) string { return fmt.Sprintf("cni%d", behind[kind]) }

func addBridge(h *netlink.Handle, name string, mtu int, addr netip.Addr) error {
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu, TxQLen: -1}}
	if err := h.LinkAdd(br); err != nil {
		return err
	}
	if err := h.AddrAdd(br, &netlink.Addr{IPNet: lab.IPNet(netip.PrefixFrom(addr, 24))}); err != nil {
		return err
	}
	return h.LinkSetUp(br)
}

// bridged creates a pod behind a bridge, with the given last byte of its address, as the
// reference plugin bridge does. If balancer is set, the pod forwards packets and its
// interface is prepared for XDP.
func (n *network) bridged(ctx context.Context, site *multisite.Site, kind, name string, last int, balancer bool) (place, error) {
	subnet, i := site.Bridge(behind[kind]), behind[kind]
	port := lab.At(site.Node, fmt.Sprintf("pod%d-%d", i, last))
	if balancer {
		port = port.ForXDP()
	}
	addr := multisite.Nth(subnet, last)
	err := n.Lab.Add(ctx, lab.Topology{
		Hosts: []lab.HostSpec{{Name: name, Is: "pod", Forward: balancer}},
		Links: []lab.Link{{
			A:   lab.At(name, podDev, netip.PrefixFrom(addr, subnet.Bits()).String()).Via(multisite.Nth(subnet, 1).String(), "default"),
			B:   port,
			MTU: mtus[kind],
		}},
	})
	if err != nil {
		return place{}, err
	}
	h := n.Lab.Host(site.Node).Netlink()
	dev, err := h.LinkByName(port.Dev)
	if err != nil {
		return place{}, err
	}
	bridge, err := h.LinkByName(bridgeOf(kind))
	if err != nil {
		return place{}, err
	}
	return place{n.Lab.Host(name), addr}, h.LinkSetMaster(dev, bridge)
}

// vtep returns the MAC address and the overlay address of a site's VXLAN endpoint.
func vtep(s *multisite.Site) (net.HardwareAddr, netip.Addr) {
	return net.HardwareAddr{2, 0, 0, 0, 0, byte(s.Number)}, s.Bridge(behind[VXLAN]).Addr()
}

// addVXLAN creates a site's VXLAN endpoint as flannel's vxlan backend does: no learning,
// and one route, one neighbor and one FDB entry per node.
func addVXLAN(h *netlink.Handle, site, other *multisite.Site) error {
	under, err := h.LinkByName(multisite.NodeDev)
	if err != nil {
		return err
	}
	mac, addr := vtep(site)
	dev := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: vxlanDev, MTU: mtus[VXLAN], HardwareAddr: mac, TxQLen: -1},
		VxlanId:   1, VtepDevIndex: under.Attrs().Index, SrcAddr: site.NodeAddr.AsSlice(), Port: vxlanPort,
	}
	if err := h.LinkAdd(dev); err != nil {
		return err
	}
	if err := h.AddrAdd(dev, &netlink.Addr{IPNet: lab.IPNet(netip.PrefixFrom(addr, 32))}); err != nil {
		return err
	}
	if err := h.LinkSetUp(dev); err != nil {
		return err
	}
	mac, addr = vtep(other)
	for _, entry := range []netlink.Neigh{
		{State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac},
		{Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, IP: other.NodeAddr.AsSlice(), HardwareAddr: mac},
	} {
		entry.LinkIndex = dev.Attrs().Index
		if err := h.NeighSet(&entry); err != nil {
			return fmt.Errorf("neighbor %s: %w", entry.IP, err)
		}
	}
	return h.RouteAdd(&netlink.Route{
		LinkIndex: dev.Attrs().Index, Dst: lab.IPNet(other.Bridge(behind[VXLAN])), Gw: addr.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
	})
}

// addTun starts a site's forwarder, as flannel's udp backend does, and routes traffic for
// the other site's pods to it.
func (n *network) addTun(ctx context.Context, node *lab.Host, site, other *multisite.Site) error {
	f, err := tunnel.Start(ctx, node, tunDev, tunPort, site.NodeAddr, other.NodeAddr)
	if err != nil {
		return err
	}
	n.forwarders[site] = f
	h := node.Netlink()
	dev, err := h.LinkByName(tunDev)
	if err != nil {
		return err
	}
	if err := h.LinkSetMTU(dev, mtus[TunUDP]); err != nil {
		return err
	}
	own := netip.PrefixFrom(site.Bridge(behind[TunUDP]).Addr(), 32)
	if err := h.AddrAdd(dev, &netlink.Addr{IPNet: lab.IPNet(own)}); err != nil {
		return err
	}
	if err := h.LinkSetUp(dev); err != nil {
		return err
	}
	return h.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: lab.IPNet(other.Bridge(behind[TunUDP])), Scope: netlink.SCOPE_LINK})
}
