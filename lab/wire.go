package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/lab/netns"
)

// defaultMTU is the MTU of a Link that sets none.
const defaultMTU = 1500

// bridgeMTU is the largest MTU of a Link through a bridge.
const bridgeMTU = 9216

// link is an existing Link.
type link struct {
	spec Link
	// port is where it can be cut: a bridge's port, in that namespace. Without a bridge
	// it cannot be cut.
	bridges *bridges
	bridge  string
	port    string
	wire    string // this link's own bridge, in the patch panel
}

// bridges is a namespace that contains only bridges.
type bridges struct {
	ns   *netns.NS
	link *netlink.Handle
}

// ethernetSwitch is an existing SwitchSpec; patchPanel contains the bridges in the middle
// of cuttable links. Both are invisible to all hosts.
type (
	ethernetSwitch struct {
		bridges
		spec SwitchSpec
	}
	patchPanel struct{ bridges }
)

const switchBridge = "bridge"

func newBridges(name string) (b bridges, err error) {
	if b.ns, err = netns.Create(name); err != nil {
		return b, err
	}
	if b.link, err = netlink.NewHandleAt(vnetns.NsHandle(b.ns.FD()), unix.NETLINK_ROUTE); err != nil {
		return b, errors.Join(err, b.close())
	}
	// A bridge itself neither sends nor answers.
	err = writeSysctls(b.ns, map[string]string{
		"net.ipv6.conf.all.disable_ipv6":     "1",
		"net.ipv6.conf.default.disable_ipv6": "1",
		"net.ipv4.conf.all.arp_ignore":       "8",
	})
	if err != nil {
		return b, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bridges) close() error {
	if b.link != nil {
		b.link.Close()
	}
	return b.ns.Close()
}

func (b *bridges) addBridge(name string) error {
	off := false
	br := &netlink.Bridge{
		LinkAttrs:         netlink.LinkAttrs{Name: name, MTU: bridgeMTU, TxQLen: -1},
		MulticastSnooping: &off,
	}
	if err := b.link.LinkAdd(br); err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	return b.link.LinkSetUp(br)
}

// plug attaches a port to a bridge, or detaches it.
func (b *bridges) plug(port, bridge string) error {
	p, err := b.link.LinkByName(port)
	if err != nil {
		return fmt.Errorf("port %s: %w", port, err)
	}
	if bridge == "" {
		return b.link.LinkSetNoMaster(p)
	}
	br, err := b.link.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", bridge, err)
	}
	return b.link.LinkSetMaster(p, br)
}

func newSwitch(spec SwitchSpec) (*ethernetSwitch, error) {
	b, err := newBridges(spec.Name)
	if err != nil {
		return nil, err
	}
	s := &ethernetSwitch{bridges: b, spec: spec}
	if err := s.addBridge(switchBridge); err != nil {
		return nil, errors.Join(fmt.Errorf("switch %s: %w", spec.Name, err), s.close())
	}
	return s, nil
}

// side is one end of a veth to be created.
type side struct {
	ns   *netns.NS
	link *netlink.Handle
	end  End
}

// addLink creates a link; removeLink removes what it leaves behind on failure.
func (l *Lab) addLink(spec Link) error {
	spec.MTU = spec.mtu()
	k := &link{spec: spec}
	l.links = append(l.links, k)
	a, b := l.sideOf(spec.A), l.sideOf(spec.B)
	for _, s := range []*side{&a, &b} {
		if sw := l.findSwitch(s.end.Host); sw != nil {
			l.made++
			s.end.Dev = fmt.Sprintf("port%d", l.made)
			k.bridges, k.bridge, k.port = &sw.bridges, switchBridge, s.end.Dev
		}
	}
	if spec.Cuttable && k.bridges == nil {
		return l.addCuttable(k, a, b)
	}
	if err := addVeth(a, b, spec.MTU); err != nil {
		return err
	}
	if k.bridges != nil {
		return k.bridges.plug(k.port, k.bridge)
	}
	return nil
}

func (l *Lab) sideOf(e End) side {
	if s := l.findSwitch(e.Host); s != nil {
		return side{s.ns, s.link, e}
	}
	h := l.find(e.Host)
	return side{h.ns, h.link, e}
}

// addCuttable routes a link through the patch panel. Each of its two ports there stands
// for the host behind the other one, including offloads.
func (l *Lab) addCuttable(k *link, a, b side) error {
	if l.panel == nil {
		made, err := newBridges("patch-panel")
		if err != nil {
			return err
		}
		l.panel = &patchPanel{made}
	}
	l.made++
	name := func(s string) string { return fmt.Sprintf("wire%d%s", l.made, s) }
	k.bridges, k.bridge, k.port, k.wire = &l.panel.bridges, name(""), name("a"), name("")
	if err := l.panel.addBridge(k.wire); err != nil {
		return err
	}
	for s, opposite := range map[*side]End{&a: b.end, &b: a.end} {
		port := End{Dev: name("a"), GRO: opposite.GRO, TxChecksumOff: opposite.TxChecksumOff}
		if s == &b {
			port.Dev = name("b")
		}
		if err := addVeth(*s, side{l.panel.ns, l.panel.link, port}, k.spec.MTU); err != nil {
			return err
		}
		if err := l.panel.plug(port.Dev, k.wire); err != nil {
			return err
		}
	}
	return nil
}

// addVeth creates a pair of interfaces, each directly in its namespace.
func addVeth(a, b side, mtu int) error {
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{
			Name: a.end.Dev, MTU: mtu, TxQLen: -1, Namespace: netlink.NsFd(a.ns.FD()),
		},
		PeerName: b.end.Dev, PeerMTU: uint32(mtu), PeerTxQLen: -1, PeerNamespace: netlink.NsFd(b.ns.FD()),
	}
	if err := a.link.LinkAdd(veth); err != nil {
		return fmt.Errorf("veth: %w", err)
	}
	// Whether a veth can be a redirect target is decided when its peer is opened, by its
	// settings at that time: so all of them come first.
	for _, step := range []func(side, netlink.Link) error{side.configure, side.open} {
		for _, s := range []side{a, b} {
			dev, err := s.link.LinkByName(s.end.Dev)
			if err == nil {
				err = step(s, dev)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.end.Dev, err)
			}
		}
	}
	return nil
}

func (s side) configure(dev netlink.Link) error {
	if err := setOffloads(s.ns, s.end); err != nil {
		return err
	}
	return addAddresses(s.link, dev, s.end.Addrs)
}

func (s side) open(dev netlink.Link) error {
	if err := s.link.LinkSetUp(dev); err != nil {
		return err
	}
	return shape(s.link, dev, s.end.Shape)
}

func addAddresses(h *netlink.Handle, dev netlink.Link, addrs []string) error {
	for _, text := range addrs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return err
		}
		a := &netlink.Addr{IPNet: IPNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(dev, a); err != nil {
			return fmt.Errorf("address %s: %w", text, err)
		}
	}
	return nil
}

// ready waits until an end carries packets, and adds its routes.
func (l *Lab) ready(ctx context.Context, e End) error {
	h := l.find(e.Host)
	if h == nil {
		return nil
	}
	dev, err := awaitDev(ctx, h.link, e.Dev, e.Addrs)
	if err != nil {
		return err
	}
	return addRoutes(h.link, dev, e)
}

// awaitDev waits until an interface is up and its addresses are permanent. The kernel
// checks carriers once a second (linkwatch) and drops what is sent earlier; IPv6
// addresses become local a moment after they are added.
func awaitDev(ctx context.Context, h *netlink.Handle, name string, addrs []string) (netlink.Link, error) {
	for {
		dev, err := h.LinkByName(name)
		if err != nil {
			return nil, err
		}
		up, err := carries(h, dev, addrs)
		if up || err != nil {
			return dev, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func carries(h *netlink.Handle, dev netlink.Link, addrs []string) (bool, error) {
	loopback := dev.Attrs().Flags&net.FlagLoopback != 0
	if dev.Attrs().OperState != netlink.OperUp && !loopback {
		return false, nil
	}
	speaks6 := false
	for _, text := range addrs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return false, err
		}
		if p.Addr().Is4() {
			continue
		}
		speaks6 = true
		routes, err := h.RouteGet(p.Addr().AsSlice())
		if err != nil || routes[0].Table != unix.RT_TABLE_LOCAL {
			return false, nil
		}
	}
	if !speaks6 || loopback {
		return true, nil
	}
	// Without a link-local address it cannot resolve neighbors.
	all, err := netlist.Whole(func() ([]netlink.Addr, error) { return h.AddrList(dev, netlink.FAMILY_V6) })
	return slices.ContainsFunc(all, func(a netlink.Addr) bool {
		return a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0
	}), err
}

func addRoutes(h *netlink.Handle, dev netlink.Link, e End) error {
	for _, r := range e.Routes {
		p, err := r.parse()
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: dev.Attrs().Index, Dst: IPNet(p.to)}
		if p.via.IsValid() {
			route.Gw = p.via.AsSlice()
		} else {
			route.Scope = netlink.SCOPE_LINK
		}
		if err := h.RouteAdd(route); err != nil {
			return fmt.Errorf("route to %s via %q: %w", r.To, r.Via, err)
		}
	}
	return nil
}

// removeLink deletes a link; it is not an error if it is already gone.
func (l *Lab) removeLink(k *link) error {
	l.links = slices.DeleteFunc(l.links, func(o *link) bool { return o == k })
	var errs []error
	for _, e := range []End{k.spec.A, k.spec.B} {
		if h := l.find(e.Host); h != nil {
			errs = append(errs, deleteDev(h.link, e.Dev))
		}
	}
	if k.wire != "" {
		errs = append(errs, deleteDev(l.panel.link, k.wire))
	}
	return errors.Join(errs...)
}

func deleteDev(h *netlink.Handle, name string) error {
	dev, err := h.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = h.LinkDel(dev)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// Cut silently cuts a link, identified by one of its ends: both ends stay up, but nothing
// passes.
func (l *Lab) Cut(host, dev string) error { return l.setCut(host, dev, true) }

// Restore restores a cut link; it is not an error if the link is not cut.
func (l *Lab) Restore(host, dev string) error { return l.setCut(host, dev, false) }

func (l *Lab) setCut(host, dev string, cut bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.links {
		for _, e := range []End{k.spec.A, k.spec.B} {
			if e.Host != host || e.Dev != dev {
				continue
			}
			if k.bridges == nil {
				return fmt.Errorf("lab: link %s - %s cannot be cut: draw it with Cuttable", k.spec.A.Host, k.spec.B.Host)
			}
			bridge := k.bridge
			if cut {
				bridge = ""
			}
			return k.bridges.plug(k.port, bridge)
		}
	}
	return fmt.Errorf("lab: host %q has no link %q", host, dev)
}
