// Package tcp makes the TCP connections of BGP: with a source address, an interface, TCP
// MD5 signatures (RFC 2385) and TTL security (RFC 5082). It explains to people why a
// connection was not established or ended, and ends one so that the last message arrives.
//
// Messages and neighbors do not belong here. Tests need the loopback interface only; TCP
// MD5 needs a kernel that has it.
package tcp

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
	// ConnectTimeout is the timeout of Dial.
	ConnectTimeout = time.Second
	connectStagger = 200 * time.Millisecond
)

// Target is a peer to connect to.
type Target struct {
	To     netip.AddrPort
	From   netip.Addr // invalid: the kernel chooses
	Device string     // the interface to bind to; empty: any
	// Password is for TCP MD5 signatures; empty: none.
	Password string
	TTL      uint8 // of our segments; 0: the kernel's
	MaxHops  uint8 // of the peer's segments, with TTL security; 0: no limit
}

// Dial connects to a peer.
func (d Target) Dial(ctx context.Context) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, ConnectTimeout)
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

func (d Target) dialOnce(ctx context.Context) (*net.TCPConn, error) {
	dialer := net.Dialer{KeepAlive: -1, Control: d.prepare} // BGP has its own keepalives
	dialer.SetMultipathTCP(false)
	if d.From.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.From, 0))
	}
	c, err := dialer.DialContext(ctx, "tcp", d.To.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// prepare configures a socket before the first segment.
func (d Target) prepare(_, _ string, c syscall.RawConn) error {
	to := d.To.Addr()
	if d.Password != "" {
		if err := sign(c, netip.PrefixFrom(to.WithZone(""), to.BitLen()), d.Password); err != nil {
			return err
		}
	}
	var failed error
	err := c.Control(func(fd uintptr) { failed = errors.Join(d.bind(int(fd)), d.setTTL(int(fd), to.Is4())) })
	return errors.Join(err, failed)
}

// bind binds a socket to its interface.
func (d Target) bind(fd int) error {
	if d.Device == "" {
		return nil
	}
	if err := unix.BindToDevice(fd, d.Device); err != nil {
		return fmt.Errorf("source interface %s: %w", d.Device, err)
	}
	return nil
}

// Tune sets the TTL of an accepted connection.
func (d Target) Tune(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = d.setTTL(int(fd), d.To.Addr().Is4()) })
	return errors.Join(err, failed)
}

// setTTL sets the TTL of our segments, and the minimum for the neighbor's (RFC 5082).
func (d Target) setTTL(fd int, ip4 bool) error {
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
	case d.MaxHops != 0:
		return errors.Join(set(ttl, 255), set(least, 256-int(d.MaxHops)))
	case d.TTL != 0:
		return set(ttl, int(d.TTL))
	}
	return nil
}

// Listen listens on an address, and expects signatures from prefixes with a password.
func Listen(ctx context.Context, at netip.AddrPort, passwords map[netip.Prefix]string) (*net.TCPListener, error) {
	network := "tcp6"
	if at.Addr().Is4() {
		network = "tcp4"
	}
	lc := net.ListenConfig{
		KeepAlive: -1,
		Control: func(_, _ string, c syscall.RawConn) error {
			for p, password := range passwords {
				if p.Addr().Is4() != at.Addr().Is4() {
					continue
				}
				if err := sign(c, p, password); err != nil {
					return err
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

// sign enables TCP MD5 signatures to and from all addresses of a prefix (RFC 2385;
// struct tcp_md5sig in Linux's include/uapi/linux/tcp.h).
func sign(c syscall.RawConn, p netip.Prefix, password string) error {
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
