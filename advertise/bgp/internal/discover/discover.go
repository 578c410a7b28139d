// Package discover finds routers on a link by router discovery (RFC 4861): a peer of which
// only the link is known is the router that is discovered there. It may look for us in the
// same way, so it is informed of us, too.
//
// Who is looked for, how often, and what happens with the result is up to the speaker. The
// tests are those of a speaker with such peers in lab/interop.
package discover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	listenFor = 5 * time.Second // in one round

	routerSolicitation, routerAdvertisement = 133, 134
	linkHops                                = 255 // packets with less have been forwarded
)

var allNodes, allRouters = netip.MustParseAddr("ff02::1"), netip.MustParseAddr("ff02::2")

// Routers sends one solicitation for routers on a link, and advertises us as a router
// that forwards no packets, with lifetime 0. It returns the link-local addresses of the
// routers that respond within a while, in order, or only the first.
func Routers(ctx context.Context, device string, first bool) ([]netip.Addr, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = prepareDiscovery(int(fd), device) })
		return errors.Join(err, failed)
	}}
	pc, err := lc.ListenPacket(ctx, "ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, fmt.Errorf("discover a router on %s: %w", device, err)
	}
	c := pc.(*net.IPConn)
	defer c.Close()
	// The kernel fills in the checksums.
	for to, m := range map[netip.Addr][]byte{allRouters: make([]byte, 8), allNodes: make([]byte, 16)} {
		m[0] = routerSolicitation
		if to == allNodes {
			m[0] = routerAdvertisement
		}
		if _, err := c.WriteTo(m, &net.IPAddr{IP: to.AsSlice(), Zone: device}); err != nil {
			return nil, fmt.Errorf("discover a router on %s: %w", device, err)
		}
	}
	return readRouters(ctx, c, device, first)
}

func prepareDiscovery(fd int, device string) error {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	if err := unix.BindToDevice(fd, device); err != nil {
		return err
	}
	for _, o := range [][2]int{
		{unix.IPV6_MULTICAST_IF, link.Index}, {unix.IPV6_MULTICAST_HOPS, linkHops}, {unix.IPV6_MULTICAST_LOOP, 0}, {unix.IPV6_RECVHOPLIMIT, 1},
	} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, o[0], o[1]); err != nil {
			return err
		}
	}
	return nil
}

func readRouters(ctx context.Context, c *net.IPConn, device string, first bool) (found []netip.Addr, err error) {
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Now()) })()
	_ = c.SetReadDeadline(time.Now().Add(listenFor))
	b, oob := make([]byte, 1500), make([]byte, 128)
	for {
		n, m, _, from, err := c.ReadMsgIP(b, oob)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return found, ctx.Err()
		}
		if err != nil {
			return found, err
		}
		a, _ := netip.AddrFromSlice(from.IP)
		if n > 0 && b[0] == routerAdvertisement && a.IsLinkLocalUnicast() && hopLimit(oob[:m]) == linkHops {
			if found = append(found, a.WithZone(device)); first {
				return found, nil
			}
		}
	}
}

// hopLimit returns the hop limit of a packet; 0 if missing.
func hopLimit(oob []byte) int {
	all, _ := unix.ParseSocketControlMessage(oob)
	for _, m := range all {
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT && len(m.Data) >= 4 {
			return int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return 0
}
