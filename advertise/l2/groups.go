package l2

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise/l2/wire"
)

// groups manages the multicast groups on which an interface receives solicitations for
// IPv6 VIPs. The kernel informs switches (MLD). The zero value has none.
type groups struct {
	// sockets hold the memberships; each socket supports a few hundred.
	sockets []int
	in      map[netip.Addr]int
}

// set joins missing groups and leaves superfluous ones.
func (g *groups) set(index int, vips []netip.Addr) error {
	wanted := map[netip.Addr]bool{}
	for _, a := range vips {
		if a.Is6() {
			wanted[wire.SolicitedNode(a)] = true
		}
	}
	var errs []error
	for group, fd := range g.in {
		if !wanted[group] {
			delete(g.in, group)
			errs = append(errs, member(fd, unix.IPV6_LEAVE_GROUP, index, group))
		}
	}
	for group := range wanted {
		if _, there := g.in[group]; !there {
			if err := g.join(index, group); err != nil {
				return errors.Join(append(errs, err)...)
			}
		}
	}
	return errors.Join(errs...)
}

func (g *groups) join(index int, group netip.Addr) error {
	if g.in == nil {
		g.in = map[netip.Addr]int{}
	}
	for _, fd := range slices.Backward(g.sockets) {
		err := member(fd, unix.IPV6_JOIN_GROUP, index, group)
		if err == nil {
			g.in[group] = fd
		}
		if !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.ENOMEM) {
			return err
		}
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("groups of IPv6: %w", err)
	}
	g.sockets = append(g.sockets, fd)
	g.in[group] = fd
	if err := member(fd, unix.IPV6_JOIN_GROUP, index, group); err != nil {
		delete(g.in, group)
		return err
	}
	return nil
}

func member(fd, option, index int, group netip.Addr) error {
	mreq := &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)}
	if err := unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, option, mreq); err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	return nil
}

func (g *groups) close() {
	for _, fd := range g.sockets {
		unix.Close(fd)
	}
	*g = groups{}
}
