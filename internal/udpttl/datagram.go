// Package udpttl receives UDP packets with their TTL, which distinguishes neighbors from
// senders behind a router (RFC 5082).
package udpttl

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// MaxTTL is the TTL of a neighbor's packets, which no router has decremented.
const MaxTTL = 255

// Datagram is a packet with its source.
type Datagram struct {
	From netip.Addr
	// TTL is the IPv4 TTL or the IPv6 hop limit; -1 if unknown.
	TTL  int
	Data []byte
}

// Expect makes Receive and Pending return the TTL of packets on c.
func Expect(c *net.UDPConn, is4 bool) error {
	if is4 {
		return set(c, unix.IPPROTO_IP, unix.IP_RECVTTL, 1)
	}
	return set(c, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1)
}

// SendFar sets the maximum TTL for packets sent on c.
func SendFar(c *net.UDPConn, is4 bool) error {
	if is4 {
		return set(c, unix.IPPROTO_IP, unix.IP_TTL, MaxTTL)
	}
	return set(c, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, MaxTTL)
}

func set(c *net.UDPConn, level, option, value int) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := rc.Control(func(fd uintptr) { serr = unix.SetsockoptInt(int(fd), level, option, value) }); err != nil {
		return err
	}
	return serr
}

// Receive waits for a packet of up to size bytes. Errors caused by earlier packets that we
// sent are ignored, but not that c was closed.
func Receive(c *net.UDPConn, size int) (Datagram, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return Datagram{}, err
	}
	for {
		var d Datagram
		var rerr error
		err := rc.Read(func(fd uintptr) bool {
			d, rerr = read(fd, size)
			return !errors.Is(rerr, unix.EAGAIN)
		})
		if err != nil || rerr == nil {
			return d, err
		}
	}
}

// Pending processes the packets already queued in c. On a busy machine a timer may run
// before a receiver, and a peer must not be declared dead while its packets are unread.
func Pending(c *net.UDPConn, size int, take func(Datagram)) {
	rc, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) {
		for {
			d, err := read(fd, size)
			if err != nil {
				return
			}
			take(d)
		}
	})
}

func read(fd uintptr, size int) (Datagram, error) {
	buf := make([]byte, size)
	var oob [64]byte
	n, oobn, _, from, err := unix.Recvmsg(int(fd), buf, oob[:], unix.MSG_DONTWAIT)
	if err != nil {
		return Datagram{}, err
	}
	d := Datagram{TTL: -1, Data: buf[:n]}
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		d.From = netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		d.From = netip.AddrFrom16(a.Addr).Unmap()
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return d, nil
	}
	for _, m := range msgs {
		ttl := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL
		hops := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT
		if (ttl || hops) && len(m.Data) >= 4 {
			d.TTL = int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return d, nil
}
