package packetfuzz

import (
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
)

// Net is a network namespace in which a target's programs run, with veth pairs to a
// namespace where nothing answers. Its methods store the first error.
type Net struct {
	inside, outside *netns.NS
	err             error
}

// NewNet creates a namespace and permanently moves this thread, which the caller has
// locked, into it.
func NewNet(name string) (*Net, error) {
	n := &Net{}
	if n.inside, n.err = netns.Create(name); n.err != nil {
		return nil, n.err
	}
	if n.outside, n.err = netns.Create(name + "-out"); n.err != nil {
		return nil, errors.Join(n.err, n.inside.Close())
	}
	if err := unix.Setns(n.inside.FD(), unix.CLONE_NEWNET); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Visit runs f in the namespace, and returns to home, in which this thread is.
func (n *Net) Visit(home *Net, f func() error) error {
	if err := unix.Setns(n.inside.FD(), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return errors.Join(f(), unix.Setns(home.inside.FD(), unix.CLONE_NEWNET))
}

// Close closes both namespaces.
func (n *Net) Close() error { return errors.Join(n.inside.Close(), n.outside.Close()) }

// Err is the first error.
func (n *Net) Err() error { return n.err }

func (n *Net) keep(what string, err error) bool {
	if err != nil && n.err == nil {
		n.err = fmt.Errorf("%s: %w", what, err)
	}
	return n.err == nil
}

// Wire creates one end of a veth pair with addresses, and returns its index.
func (n *Net) Wire(name string, mac [6]byte, mtu int, addrs ...string) uint32 {
	if n.err != nil {
		return 0
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = name, mac[:], mtu
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(n.outside.FD())}
	if !n.keep("make "+name, netlink.LinkAdd(veth)) {
		return 0
	}
	err := n.outside.Do(func() error {
		far, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(far)
	})
	n.keep("set the far end of "+name+" up", err)
	return n.Up(name, addrs...)
}

// Up adds addresses to a device and sets it up.
func (n *Net) Up(name string, addrs ...string) uint32 {
	nic, err := netlink.LinkByName(name)
	if !n.keep(name, err) {
		return 0
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if !n.keep(a, err) {
			return 0
		}
		addr.Flags = unix.IFA_F_NODAD
		n.keep("give "+name+" "+a, netlink.AddrAdd(nic, addr))
	}
	n.keep("set "+name+" up", netlink.LinkSetUp(nic))
	return uint32(nic.Attrs().Index)
}

// Add creates any other device.
func (n *Net) Add(l netlink.Link) uint32 {
	if n.err != nil || !n.keep("make "+l.Attrs().Name, netlink.LinkAdd(l)) {
		return 0
	}
	return n.Up(l.Attrs().Name)
}

// Neighbor sets the MAC address of a neighbor.
func (n *Net) Neighbor(nic uint32, ip string, mac [6]byte) {
	if n.err == nil {
		n.keep("neighbor "+ip, netlink.NeighSet(&netlink.Neigh{
			LinkIndex: int(nic), IP: net.ParseIP(ip), HardwareAddr: mac[:], State: netlink.NUD_PERMANENT,
		}))
	}
}

// Route adds a route; an empty dst is the default route.
func (n *Net) Route(dst string, r netlink.Route) {
	if n.err != nil {
		return
	}
	if dst != "" {
		_, prefix, err := net.ParseCIDR(dst)
		if !n.keep(dst, err) {
			return
		}
		r.Dst = prefix
	}
	n.keep("route to "+dst, netlink.RouteAdd(&r))
}

// Program returns the XDP program of a device.
func (n *Net) Program(nic string) (uint32, error) {
	l, err := netlink.LinkByName(nic)
	if err != nil {
		return 0, err
	}
	if xdp := l.Attrs().Xdp; xdp != nil && xdp.ProgId != 0 {
		return xdp.ProgId, nil
	}
	return 0, fmt.Errorf("%s has no XDP program", nic)
}

// OneCPU locks the goroutine to its thread and the thread to a CPU, so that per-CPU state
// is in one place. It returns the CPU's number.
func OneCPU(wish int) (int, error) {
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, err
	}
	for i, seen := 0, 0; i < len(allowed)*64; i++ {
		if !allowed.IsSet(i) {
			continue
		}
		if seen++; seen > wish%allowed.Count() {
			one.Set(i)
			return i, unix.SchedSetaffinity(0, &one)
		}
	}
	return 0, errors.New("no CPU is allowed")
}

// Enslave makes a device a port of a bridge.
func (n *Net) Enslave(port, bridge string) {
	if n.err != nil {
		return
	}
	p, err := netlink.LinkByName(port)
	if !n.keep(port, err) {
		return
	}
	b, err := netlink.LinkByName(bridge)
	if n.keep(bridge, err) {
		n.keep("put "+port+" into "+bridge, netlink.LinkSetMaster(p, b))
	}
}
