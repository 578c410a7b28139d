package dsr

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
)

// place is where a backend runs, with the programs' values.
type place = dsrServerPlace

const (
	elsewhere place = 0
	inPod           = dsrServerPlaceSERVER_PLACE_POD
	onHost          = dsrServerPlaceSERVER_PLACE_HOST
)

// where is a backend's location according to the kernel's routes.
type where struct {
	place   place
	devices []int  // to attach to, by index
	why     string // for elsewhere
	unknown bool   // the kernel returned an error
}

// view contains the node's devices and routes, to locate backends.
type view struct{ *devices.View }

// routes queries the kernel for devices and routes.
type routes struct {
	nl  *netlink.Handle
	get func(net.IP) ([]netlink.Route, error)
}

func newRoutes() (*routes, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &routes{nl, nl.RouteGet}, nil
}

func (r *routes) close() { r.nl.Close() }

func (r *routes) look(uplinks []string) (*view, error) {
	v, err := devices.Look(r.nl, uplinks)
	return &view{v}, err
}

// locate looks up the route to a backend and returns its location.
func (r *routes) locate(v *view, server netip.Addr) (where, error) {
	rs, err := r.get(server.AsSlice())
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

// place interprets a route to a backend.
func (v *view) place(server netip.Addr, route netlink.Route) where {
	d := v.Devices[route.LinkIndex]
	switch {
	case route.Type == unix.RTN_LOCAL:
		return v.host(server)
	case route.Type != unix.RTN_UNICAST:
		return where{why: "no route leads to it"}
	case route.Gw != nil || route.Via != nil:
		return where{why: fmt.Sprintf("routed through %s to another node", d.Name)}
	case !v.leadsToPods(d):
		return where{why: fmt.Sprintf("routed through %s out of this node", d.Name)}
	case d.Kind == "bridge":
		return where{place: inPod, devices: v.ports(d)}
	}
	return where{place: inPod, devices: []int{d.Index}}
}

// leadsToPods reports whether backends are behind a device, or the network: both can be
// of the same kind if nodes are namespaces themselves.
func (v *view) leadsToPods(d devices.Device) bool {
	switch {
	case !d.Ethernet:
		return false
	case len(v.Uplinks) > 0:
		return !slices.Contains(v.Uplinks, d.Name) && devices.IsPodKind(d.Kind)
	case d.Kind == "bridge":
		return !v.Defaults[d.Index]
	}
	return devices.IsPodKind(d.Kind) && !v.Defaults[d.Index] && !v.Gateways[d.Index]
}

// ports are the devices of a bridge that lead to pods. The programs are attached there
// and not to the bridge itself, which does not see traffic between its pods.
func (v *view) ports(bridge devices.Device) []int {
	var ports []int
	for _, d := range v.Devices {
		if d.Master == bridge.Index && d.Ethernet && devices.IsPodKind(d.Kind) {
			ports = append(ports, d.Index)
		}
	}
	slices.Sort(ports)
	return ports
}

// host handles a backend on the node itself: at the entrances and at the device with its
// address.
func (v *view) host(server netip.Addr) where {
	devices := v.Entrances()
	if index, ok := v.Holders[server]; ok && v.Devices[index].Ethernet && !slices.Contains(devices, index) {
		devices = append(devices, index)
	}
	if len(devices) == 0 {
		return where{why: "it is this node, which has no Ethernet device to the network"}
	}
	return where{place: onHost, devices: devices}
}
