package serverhalf

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// place is where a server is, as the programs have it.
type place = serverServerPlace

const (
	elsewhere place = 0
	inPod           = serverServerPlaceSERVER_PLACE_POD
	onHost          = serverServerPlaceSERVER_PLACE_HOST
)

// where is what the kernel's routes say of one server.
type where struct {
	place   place
	devices []int  // to attach to, by index
	why     string // for elsewhere
}

// device is a network device as far as it matters here.
type device struct {
	index, master int
	name, kind    string
	ethernet      bool
}

// view is the node's devices and what its routes make of them.
type view struct {
	devices map[int]device
	// defaults carry a default route, gateways any route with a gateway.
	defaults, gateways map[int]bool
	holders            map[netip.Addr]int
	uplinks            []string // as configured; empty: to be found
}

// routes asks the kernel about devices and routes.
type routes struct{ nl *netlink.Handle }

func newRoutes() (*routes, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &routes{nl}, nil
}

func (r *routes) close() { r.nl.Close() }

// look reads the view from the kernel. A list that changes while it is read
// is read again.
func (r *routes) look(uplinks []string) (v *view, err error) {
	for range 10 {
		v, err = r.lookOnce(uplinks)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return v, err
}

func (r *routes) lookOnce(uplinks []string) (*view, error) {
	v := &view{
		devices: map[int]device{}, defaults: map[int]bool{}, gateways: map[int]bool{},
		holders: map[netip.Addr]int{}, uplinks: uplinks,
	}
	links, err := r.nl.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		v.devices[a.Index] = device{
			index: a.Index, master: a.MasterIndex, name: a.Name, kind: l.Type(),
			ethernet: a.EncapType == "ether" && a.Flags&net.FlagLoopback == 0,
		}
	}
	addrs, err := r.nl.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			v.holders[ip.Unmap()] = a.LinkIndex
		}
	}
	all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	rs, err := r.nl.RouteListFiltered(netlink.FAMILY_ALL, all, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, route := range rs {
		v.addRoute(route)
	}
	return v, nil
}

func (v *view) addRoute(route netlink.Route) {
	hops := route.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: route.LinkIndex, Gw: route.Gw, Via: route.Via}}
	}
	for _, hop := range hops {
		if isDefault(route) && hop.LinkIndex != 0 {
			v.defaults[hop.LinkIndex] = true
		}
		if hop.Gw != nil || hop.Via != nil {
			v.gateways[hop.LinkIndex] = true
		}
	}
}

func isDefault(route netlink.Route) bool {
	if route.Type != unix.RTN_UNICAST {
		return false
	}
	if route.Dst == nil {
		return true
	}
	ones, _ := route.Dst.Mask.Size()
	return ones == 0
}

// locate asks for the route to a server and says where that is.
func (r *routes) locate(v *view, server netip.Addr) (where, error) {
	rs, err := r.nl.RouteGet(server.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) ||
		errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESRCH) {
		return where{why: "no route leads to it"}, nil
	}
	if err != nil {
		return where{}, fmt.Errorf("route to %s: %w", server, err)
	}
	if len(rs) == 0 {
		return where{why: "no route leads to it"}, nil
	}
	return v.place(server, rs[0]), nil
}

// place says what a route to a server means.
func (v *view) place(server netip.Addr, route netlink.Route) where {
	d := v.devices[route.LinkIndex]
	switch {
	case route.Type == unix.RTN_LOCAL:
		return v.host(server)
	case route.Type != unix.RTN_UNICAST:
		return where{why: "no route leads to it"}
	case route.Gw != nil || route.Via != nil:
		return where{why: fmt.Sprintf("its route leads by %s to another node", d.name)}
	case !v.leadsToPods(d):
		return where{why: fmt.Sprintf("its route leads by %s out of this node", d.name)}
	case d.kind == "bridge":
		return where{place: inPod, devices: v.ports(d)}
	}
	return where{place: inPod, devices: []int{d.index}}
}

// leadsToPods tells a device with servers behind it from one that leads to the
// network: they can be of the same kind where nodes are namespaces themselves.
func (v *view) leadsToPods(d device) bool {
	switch {
	case !d.ethernet:
		return false
	case len(v.uplinks) > 0:
		return !slices.Contains(v.uplinks, d.name) && isPodKind(d.kind)
	case d.kind == "bridge":
		return !v.defaults[d.index]
	}
	return isPodKind(d.kind) && !v.defaults[d.index] && !v.gateways[d.index]
}

func isPodKind(kind string) bool {
	return kind == "veth" || kind == "bridge" || kind == "tuntap"
}

// ports are the devices of a bridge that lead to pods. The programs sit there
// and not at the bridge itself, which sees nothing of what goes from one of
// its pods to another.
func (v *view) ports(bridge device) []int {
	var ports []int
	for _, d := range v.devices {
		if d.master == bridge.index && d.ethernet && isPodKind(d.kind) {
			ports = append(ports, d.index)
		}
	}
	slices.Sort(ports)
	return ports
}

// entrances are where packets come into the node: devices with routes to
// others, which may also be pods (a balancer).
func (v *view) entrances() []int {
	found := map[int]bool{}
	maps.Copy(found, v.gateways)
	maps.Copy(found, v.defaults)
	for _, d := range v.devices {
		if slices.Contains(v.uplinks, d.name) {
			found[d.index] = true
		}
	}
	maps.DeleteFunc(found, func(index int, _ bool) bool { return !v.devices[index].ethernet })
	return slices.Sorted(maps.Keys(found))
}

// host is a server on the node itself: at the entrances and at the device with
// its address.
func (v *view) host(server netip.Addr) where {
	devices := v.entrances()
	if index, ok := v.holders[server]; ok && v.devices[index].ethernet && !slices.Contains(devices, index) {
		devices = append(devices, index)
	}
	if len(devices) == 0 {
		return where{why: "it is this node, which has no Ethernet device to the network"}
	}
	return where{place: onHost, devices: devices}
}
