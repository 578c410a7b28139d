package cni

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/vdn/client"
)

// Check compares the pod's interface, addresses and routes with the result of ADD, and its
// lease if the controller responds. An unreachable controller is not an error, because the
// pod's network does not depend on it.
func Check(args *skel.CmdArgs) error {
	c, err := newCall(args, Parse)
	if err != nil {
		return err
	}
	if c.Previous == nil {
		return invalid("prevResult is required: pass the result of ADD")
	}
	p, err := openPod(c.netns)
	if err != nil {
		return gone(c.netns, err)
	}
	defer p.close()
	link, err := c.checkInterface(p)
	if err != nil {
		return err
	}
	if err := c.checkKernel(p, link); err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	return c.sameLease(ctx)
}

func changed(format string, args ...any) error { return fail(ErrChanged, format, args...) }

// checkInterface finds the pod's device and compares it.
func (c *call) checkInterface(p *pod) (netlink.Link, error) {
	at := c.interfaceIndex()
	if at < 0 {
		return nil, changed("prevResult has no interface %s in a sandbox: pass the result of this attachment", c.iface)
	}
	want := c.Previous.Interfaces[at]
	if want.Sandbox != c.netns {
		return nil, changed("prevResult: interface %s is in %s, and CNI_NETNS is %s", c.iface, want.Sandbox, c.netns)
	}
	l, err := p.links.LinkByName(c.iface)
	if absent(err) {
		return nil, changed("interface %s not found: the pod deleted or renamed it, or its NIC was removed", c.iface)
	}
	if err != nil {
		return nil, err
	}
	a := l.Attrs()
	switch {
	case want.Mac != "" && !strings.EqualFold(want.Mac, a.HardwareAddr.String()): // the tuning plugin keeps its user's spelling
		return nil, changed("interface %s has MAC %s, want %s", c.iface, a.HardwareAddr, want.Mac)
	case want.Mtu != 0 && want.Mtu != a.MTU:
		return nil, changed("interface %s has MTU %d, want %d", c.iface, a.MTU, want.Mtu)
	case a.Flags&net.FlagUp == 0:
		return nil, changed("interface %s is down", c.iface)
	}
	return l, nil
}

// interfaceIndex returns the index of the pod's interface in prevResult, or -1.
func (c *call) interfaceIndex() int {
	return slices.IndexFunc(c.Previous.Interfaces, func(i *current.Interface) bool { return i.Name == c.iface && i.Sandbox != "" })
}

// checkKernel compares addresses and routes. Other plugins may add more, and check the
// addresses of their own interfaces themselves.
func (c *call) checkKernel(p *pod, l netlink.Link) error {
	have, err := netlist.Whole(func() ([]netlink.Addr, error) { return p.links.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	for _, ip := range c.Previous.IPs {
		if ip.Interface != nil && *ip.Interface != c.interfaceIndex() {
			continue
		}
		a, there := first(have, func(a netlink.Addr) bool { return a.IPNet.String() == ip.Address.String() })
		if !there {
			return changed("interface %s does not have address %s", l.Attrs().Name, ip.Address.String())
		}
		if a.Flags&unix.IFA_F_DADFAILED != 0 {
			return changed("interface %s: another host also uses address %s", l.Attrs().Name, ip.Address.IP)
		}
	}
	routes, err := netlist.Whole(func() ([]netlink.Route, error) {
		return p.links.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return err
	}
	for _, r := range c.Previous.Routes {
		if _, there := first(routes, func(have netlink.Route) bool { return same(have, r) }); !there {
			return changed("route %s not found", r.String())
		}
	}
	return nil
}

func same(have netlink.Route, want *types.Route) bool {
	return have.Dst != nil && have.Dst.String() == want.Dst.String() && (len(want.GW) == 0 || have.Gw.Equal(want.GW))
}

// sameLease compares the result with the controller's lease if the controller responds.
func (c *call) sameLease(ctx context.Context) error {
	if c.inherited() != nil && !c.handOver(ctx) {
		return nil
	}
	a, err := c.vdn.Attachment(ctx, c.id())
	switch {
	case client.IsUnavailable(err):
		return nil
	case client.IsStatus(err, http.StatusNotFound):
		return changed("network %s: the controller has no lease %s: delete the pod", c.Network, c.id())
	case err != nil:
		return c.refused(err)
	}
	mine := prefixes(c.Previous)
	for _, p := range a.Addresses {
		if !slices.Contains(mine, p) {
			return changed("network %s: the pod does not have address %[3]s of lease %[2]s", c.Network, a.ID, p)
		}
	}
	return nil
}
