// Package nexthop looks up how the kernel sends packets to backends: route, neighbor and
// MTU. Queries show it; nothing here changes the kernel or decides how to forward.
package nexthop

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/netlist"
)

// Look looks up the paths to addresses, in the calling thread's network namespace.
func Look(to []netip.Addr) (map[netip.Addr]dataplane.Path, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	l := looker{nl: nl, links: map[int]netlink.Link{}, neighbors: map[neighborhood]map[netip.Addr]netlink.Neigh{}}
	paths := make(map[netip.Addr]dataplane.Path, len(to))
	for _, a := range to {
		if _, known := paths[a]; known {
			continue
		}
		p, err := l.path(a)
		if err != nil {
			p.Error = err.Error()
		}
		paths[a] = p
	}
	return paths, nil
}

// neighborhood is the neighbors of one family on a link.
type neighborhood struct {
	link int
	six  bool
}

// looker remembers links and neighbors.
type looker struct {
	nl        *netlink.Handle
	links     map[int]netlink.Link
	neighbors map[neighborhood]map[netip.Addr]netlink.Neigh
}

func (l *looker) path(to netip.Addr) (p dataplane.Path, err error) {
	routes, err := l.nl.RouteGet(to.AsSlice())
	switch {
	case errors.Is(err, unix.EACCES):
		return p, errors.New("the kernel's routes prohibit it")
	case errors.Is(err, unix.EINVAL):
		return p, errors.New("the kernel's routes discard it (blackhole)")
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ESRCH), err == nil && len(routes) == 0:
		return p, errors.New("the kernel has no route to it")
	case err != nil:
		return p, fmt.Errorf("look up the route: %w", err)
	}
	r := routes[0]
	if r.Type == unix.RTN_LOCAL {
		return dataplane.Path{Local: true}, nil
	}
	link, err := l.link(r.LinkIndex)
	if err != nil {
		return p, err
	}
	p.Interface, p.MTU = link.Attrs().Name, link.Attrs().MTU
	if r.MTU > 0 {
		p.MTU = r.MTU
	}
	hop := to
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		p.Gateway = gw.Unmap()
		hop = p.Gateway
	}
	return p, l.neighbor(&p, r.LinkIndex, hop)
}

func (l *looker) link(index int) (netlink.Link, error) {
	if link := l.links[index]; link != nil {
		return link, nil
	}
	link, err := l.nl.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("look up interface %d: %w", index, err)
	}
	l.links[index] = link
	return link, nil
}

// neighbor sets the next hop's MAC address, if it is known. It is an error if the
// neighbor has not answered.
func (l *looker) neighbor(p *dataplane.Path, link int, hop netip.Addr) error {
	at := neighborhood{link, hop.Is6()}
	if l.neighbors[at] == nil {
		family := unix.AF_INET
		if at.six {
			family = unix.AF_INET6
		}
		all, err := netlist.Whole(func() ([]netlink.Neigh, error) { return l.nl.NeighList(link, family) })
		if err != nil {
			return fmt.Errorf("list the neighbors on %s: %w", p.Interface, err)
		}
		l.neighbors[at] = map[netip.Addr]netlink.Neigh{}
		for _, n := range all {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				l.neighbors[at][a.Unmap()] = n
			}
		}
	}
	n, known := l.neighbors[at][hop]
	switch {
	case known && n.State == netlink.NUD_FAILED:
		return fmt.Errorf("%s does not answer on %s (no MAC address)", hop, p.Interface)
	case known && len(n.HardwareAddr) > 0:
		p.MAC = n.HardwareAddr.String()
	}
	return nil
}
