package dsr

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// choice is the test load balancer's handling of packets to a VIP. The real one uses its
// ring.
type choice struct {
	method service.Method
	first  netip.AddrPort
	older  list // backends that may know the flow, newest first
	gue    bool
}

// balancer simulates the load balancer in user space: a packet socket in, raw sockets
// out, one packet at a time.
type balancer struct {
	in, out4, out6 int

	mu      sync.Mutex
	choices map[netip.AddrPort]choice
	failed  []error
}

func newBalancer(t *testing.T, ns *netns.NS) *balancer {
	t.Helper()
	b := &balancer{choices: map[netip.AddrPort]choice{}}
	testkit.Do(t, ns, func() (err error) {
		all := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
		if b.in, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		if b.out4, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return err
		}
		b.out6, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	for _, opt := range []int{unix.SO_RCVBUFFORCE} {
		if err := unix.SetsockoptInt(b.in, unix.SOL_SOCKET, opt, 8<<20); err != nil {
			t.Fatal(err)
		}
	}
	wake := unix.Timeval{Usec: 50000}
	if err := unix.SetsockoptTimeval(b.in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wake); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go b.run(stop, stopped)
	t.Cleanup(func() {
		close(stop)
		<-stopped
		unix.Close(b.in)
		unix.Close(b.out4)
		unix.Close(b.out6)
	})
	return b
}

// choose sets the handling of packets for a VIP from now on.
func (b *balancer) choose(vip netip.AddrPort, c choice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.choices[vip] = c
}

func (b *balancer) run(stop, stopped chan struct{}) {
	defer close(stopped)
	buf := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(b.in, buf, 0)
		if err != nil {
			continue // the socket's own timeout
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype != unix.PACKET_HOST {
			continue
		}
		if err := b.forward(buf[:n]); err != nil {
			b.mu.Lock()
			b.failed = append(b.failed, err)
			b.mu.Unlock()
		}
	}
}

func (b *balancer) errors() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.failed) == 0 {
		return "no errors"
	}
	return fmt.Sprintf("%d errors, the first: %v", len(b.failed), b.failed[0])
}

// ipPacket is what the load balancer parses of a packet.
type ipPacket struct {
	head     int // bytes of the IP header
	src, dst netip.AddrPort
	proto    byte
	syn      bool
	tos, ttl byte
}

// parseIP parses a packet without options or extension headers.
func parseIP(b []byte) (p ipPacket, ok bool) {
	var src, dst netip.Addr
	switch {
	case len(b) > 28 && b[0] == 0x45:
		src, _ = netip.AddrFromSlice(b[12:16])
		dst, _ = netip.AddrFromSlice(b[16:20])
		p = ipPacket{head: 20, proto: b[9], tos: b[1], ttl: b[8]}
	case len(b) > 48 && b[0]>>4 == 6:
		src, _ = netip.AddrFromSlice(b[8:24])
		dst, _ = netip.AddrFromSlice(b[24:40])
		p = ipPacket{head: 40, proto: b[6], ttl: b[7]}
	default:
		return p, false
	}
	if p.proto != 6 && p.proto != 17 {
		return p, false
	}
	l4 := b[p.head:]
	p.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(l4))
	p.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(l4[2:]))
	p.syn = p.proto == 6 && len(l4) >= 20 && l4[13]&0x12 == 0x02
	return p, true
}

func (b *balancer) forward(packet []byte) error {
	p, ok := parseIP(packet)
	if !ok {
		return nil
	}
	b.mu.Lock()
	c, ok := b.choices[p.dst]
	b.mu.Unlock()
	if !ok {
		return nil
	}
	older := c.older
	if p.syn {
		older = nil
	} else if p.proto == 17 && len(older) > 0 {
		older = append(slices.Clone(older), c.first) // back to the first backend
	}
	switch {
	case c.method == service.Tunnel:
		return b.send(c.first.Addr(), c.tunneled(packet, older))
	case p.proto == 6 && !p.syn && len(older) == 0:
		return b.send(c.first.Addr(), translated(packet, p, c.first, nil))
	}
	return b.send(c.first.Addr(), translated(packet, p, c.first, append(list{p.dst}, older...)))
}

// tunneled encapsulates a packet from the load balancer to a backend.
func (c choice) tunneled(packet []byte, older list) []byte {
	to := c.first.Addr()
	head := ipHead{src: ap("10.0.0.120:0").Addr(), dst: to, ttl: 64, proto: 4, option: older}
	if to.Is6() {
		head.src = ap("[2001:db8::120]:0").Addr()
	}
	if packet[0]>>4 == 6 {
		head.proto = 41
	}
	if c.gue {
		packet = wire{}.inGUE(head, packet)
		head.proto, head.option = 17, nil
	}
	b, _ := head.before(packet)
	return b
}

// translated gives a packet another destination, and the option in its header.
func translated(packet []byte, p ipPacket, to netip.AddrPort, option list) []byte {
	l4 := append([]byte{}, packet[p.head:]...)
	binary.BigEndian.PutUint16(l4[2:], to.Port())
	at := 16
	if p.proto == 17 {
		at = 6
	}
	l4[at], l4[at+1] = 0, 0
	binary.BigEndian.PutUint16(l4[at:], checksum(p.src.Addr(), to.Addr(), p.proto, l4))
	head := ipHead{src: p.src.Addr(), dst: to.Addr(), ttl: p.ttl, tos: p.tos, proto: p.proto, option: option}
	b, _ := head.before(l4)
	return b
}

// checksum is that of TCP and UDP (RFC 9293, 3.1; RFC 8200, 8.1).
func checksum(src, dst netip.Addr, proto byte, l4 []byte) uint16 {
	pseudo := append(append([]byte{}, src.AsSlice()...), dst.AsSlice()...)
	pseudo = append(pseudo, 0, proto, byte(len(l4)>>8), byte(len(l4)))
	sum := uint32(0)
	for _, part := range [][]byte{pseudo, l4} {
		for i, x := range part {
			sum += uint32(x) << (8 * (1 - i%2))
		}
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
	}
	if sum == 0xffff && proto == 17 {
		return 0xffff
	}
	return ^uint16(sum)
}

func (b *balancer) send(to netip.Addr, packet []byte) error {
	var err error
	if to.Is4() {
		err = unix.Sendto(b.out4, packet, 0, &unix.SockaddrInet4{Addr: to.As4()})
	} else {
		err = unix.Sendto(b.out6, packet, 0, &unix.SockaddrInet6{Addr: to.As16()})
	}
	if err != nil {
		return fmt.Errorf("send %d bytes to %s: %w", len(packet), to, err)
	}
	return nil
}
