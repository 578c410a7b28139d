package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel retransmits a lost SYN only after a second, and a peer with a password does
// not answer while it is down: its kernel's resets are not signed. Therefore several
// connections are attempted, staggered.
const (
	connectTimeout = time.Second
	connectStagger = 200 * time.Millisecond
)

// dialTCP connects to a peer, with its source address, signatures and TTL.
func (d *dialTarget) dialTCP(ctx context.Context) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	type result struct {
		c   *net.TCPConn
		err error
	}
	results := make(chan result)
	attempt := func() {
		c, err := d.dialOnce(ctx)
		select {
		case results <- result{c, err}:
		case <-ctx.Done(): // another one was first, or it is too late
			if err == nil {
				c.Close()
			}
		}
	}
	again := time.NewTicker(connectStagger)
	defer again.Stop()
	go attempt()
	for {
		select {
		case r := <-results:
			return r.c, r.err
		case <-again.C:
			go attempt()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (d *dialTarget) dialOnce(ctx context.Context) (*net.TCPConn, error) {
	dialer := net.Dialer{KeepAlive: -1, Control: d.prepare} // BGP has its own keepalives
	dialer.SetMultipathTCP(false)
	if d.from.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.from, 0))
	}
	c, err := dialer.DialContext(ctx, "tcp", d.to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// prepare configures a socket before the first segment.
func (d *dialTarget) prepare(_, _ string, c syscall.RawConn) error {
	to := d.to.Addr()
	if d.group.password != "" {
		if err := signTCP(c, netip.PrefixFrom(to.WithZone(""), to.BitLen()), d.group.password); err != nil {
			return err
		}
	}
	var failed error
	err := c.Control(func(fd uintptr) { failed = errors.Join(d.bind(int(fd)), d.group.setTTL(int(fd), to.Is4())) })
	return errors.Join(err, failed)
}

// bind binds a socket to its interface.
func (d *dialTarget) bind(fd int) error {
	if d.device == "" {
		return nil
	}
	if err := unix.BindToDevice(fd, d.device); err != nil {
		return fmt.Errorf("source interface %s: %w", d.device, err)
	}
	return nil
}

// minTTL returns the minimum TTL of a neighbor's received segments (RFC 5082).
func (g *group) minTTL() int { return 256 - int(g.hops) }

// setTTL sets the TTL of our segments, and the minimum for the neighbor's. gobgp does so
// too, but only once the session is up.
func (g *group) setTTL(fd int, ip4 bool) error {
	level, ttl, least := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL
	if !ip4 {
		level, ttl, least = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT
	}
	set := func(what, value int) error {
		if err := unix.SetsockoptInt(fd, level, what, value); err != nil {
			return fmt.Errorf("TTL %d: %w", value, err)
		}
		return nil
	}
	switch {
	case g.hops != 0:
		return errors.Join(set(ttl, 255), set(least, g.minTTL()))
	case g.ttl != 0:
		return set(ttl, int(g.ttl))
	}
	return nil
}

// listenTCP listens on an address, and expects signatures from the prefixes of groups
// with a password.
func listenTCP(ctx context.Context, at netip.AddrPort, groups []*group) (*net.TCPListener, error) {
	network := "tcp6"
	if at.Addr().Is4() {
		network = "tcp4"
	}
	lc := net.ListenConfig{
		KeepAlive: -1,
		Control: func(_, _ string, c syscall.RawConn) error {
			for _, g := range groups {
				for _, p := range g.prefixes {
					if g.password == "" || p.Addr().Is4() != at.Addr().Is4() {
						continue
					}
					if err := signTCP(c, p, g.password); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
	lc.SetMultipathTCP(false) // MPTCP and TCP MD5 are mutually exclusive
	l, err := lc.Listen(ctx, network, at.String())
	if err != nil {
		return nil, fmt.Errorf("listen for BGP on %s: %w", at, err)
	}
	return l.(*net.TCPListener), nil
}

// signTCP enables TCP MD5 signatures to and from all addresses of a prefix (RFC 2385;
// struct tcp_md5sig in Linux's include/uapi/linux/tcp.h).
func signTCP(c syscall.RawConn, p netip.Prefix, password string) error {
	sig := unix.TCPMD5Sig{Flags: unix.TCP_MD5SIG_FLAG_PREFIX, Prefixlen: uint8(p.Bits()), Keylen: uint16(len(password))}
	// Addr is a sockaddr_storage: the family, then what precedes the address in struct
	// sockaddr_in or sockaddr_in6.
	if p.Addr().Is4() {
		sig.Addr.Family = unix.AF_INET
		copy(sig.Addr.Data[2:], p.Addr().AsSlice())
	} else {
		sig.Addr.Family = unix.AF_INET6
		copy(sig.Addr.Data[6:], p.Addr().AsSlice())
	}
	copy(sig.Key[:], password)
	var serr error
	err := c.Control(func(fd uintptr) {
		serr = unix.SetsockoptTCPMD5Sig(int(fd), unix.IPPROTO_TCP, unix.TCP_MD5SIG_EXT, &sig)
	})
	if err == nil && serr != nil {
		err = fmt.Errorf("password for %s (TCP MD5): %w", p, serr)
	}
	return err
}
