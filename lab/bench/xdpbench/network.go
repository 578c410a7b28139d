package xdpbench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab/netns"
)

// The network of all measurements except the DSR agent's:
//
//	namespace generator           namespace balancer
//	  net0 ────────────────────── eth0  172.16.0.2/24, fd00::2/64
//	                                    gateway 172.16.0.1, fd00::1
//
// What the generator sends reaches the load balancer on eth0. What the load balancer
// sends back ends at net0.
const (
	ownAddr     = "172.16.0.2"
	ownAddr6    = "fd00::2"
	gatewayAddr = "172.16.0.1"
	gateway6    = "fd00::1"
)

var (
	macGenerator = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macBalancer  = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// Network contains the two namespaces, and the pins of a data plane in one of them.
type Network struct {
	// Balancer is the load balancer's namespace, and NIC the index of its eth0.
	Balancer *netns.NS
	NIC      int

	name      string
	generator *netns.NS
	net0      int
}

// NewNetwork creates the namespaces, whose names begin with name. It must run in a
// sandbox.
func NewNetwork(name string) (*Network, error) {
	n := &Network{name: name}
	if err := n.make(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) make() (err error) {
	if n.generator, err = netns.Create(n.name + "-generator"); err != nil {
		return err
	}
	if n.Balancer, err = netns.Create(n.name + "-balancer"); err != nil {
		return err
	}
	if err := n.Balancer.Do(n.wire); err != nil {
		return err
	}
	return n.generator.Do(func() error {
		net0, err := netlink.LinkByName("net0")
		if err != nil {
			return err
		}
		n.net0 = net0.Attrs().Index
		return netlink.LinkSetUp(net0)
	})
}

// wire creates the veth, in the load balancer's namespace.
func (n *Network) wire() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = "eth0", macBalancer
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "net0", PeerHardwareAddr: macGenerator, PeerNamespace: netlink.NsFd(n.generator.FD())}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	n.NIC = eth0.Attrs().Index
	for _, a := range []string{ownAddr + "/24", ownAddr6 + "/64"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(eth0, addr); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(eth0); err != nil {
		return err
	}
	for _, a := range []string{gatewayAddr, gateway6} {
		if err := n.neighbor(a); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: n.NIC, Gw: net.ParseIP(a)}); err != nil {
			return fmt.Errorf("route by %s: %w", a, err)
		}
	}
	return nil
}

// neighbor adds a neighbor entry that maps an address to the generator.
func (n *Network) neighbor(addr string) error {
	err := netlink.NeighSet(&netlink.Neigh{LinkIndex: n.NIC, IP: net.ParseIP(addr), HardwareAddr: macGenerator, State: netlink.NUD_PERMANENT})
	if err != nil {
		return fmt.Errorf("neighbor %s: %w", addr, err)
	}
	return nil
}

// Attached is a data plane that detaches from the kernel when it is closed.
type Attached struct {
	*xdp.DataPlane
	in   *netns.NS
	pins string
}

func (d Attached) Close() error { return errors.Join(d.in.Do(d.Detach), os.RemoveAll(d.pins)) }

// Open opens a data plane on eth0. c contains the sizes.
func (n *Network) Open(c xdp.Config) (d Attached, err error) {
	c.Interfaces, c.PinDir, c.Mode = []string{"eth0"}, "/sys/fs/bpf/"+n.name, xdp.Native
	c.SourceV4, c.SourceV6 = netip.MustParseAddr(ownAddr), netip.MustParseAddr(ownAddr6)
	d.in, d.pins = n.Balancer, c.PinDir
	err = d.in.Do(func() error {
		d.DataPlane, err = xdp.Open(c)
		return err
	})
	return d, err
}

// Close removes the namespaces.
func (n *Network) Close() error {
	var errs []error
	for _, ns := range []*netns.NS{n.generator, n.Balancer} {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}
