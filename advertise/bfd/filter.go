package bfd

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/udpttl"
)

// maxFiltered limits how many neighbors the kernel filter recognizes, because its jumps
// are short. With more neighbors, unknown senders are rejected in receive, after they
// took space in the socket's queue.
const maxFiltered = 50

// keepNet is SKF_NET_OFF: offsets from the IP header (linux/filter.h).
const keepNet = 0xfff00000

// filter makes the kernel drop what receive would reject by its TTL or its source, so
// that a flood of such packets does not fill the queue that packets of neighbors need,
// too. It is only an optimization: if it cannot be set, receive rejects the same packets.
// Runs under e.mu, or before the sockets are shared.
func (e *Endpoint) filter() {
	for i, c := range e.sockets {
		program := e.program(i == 0)
		rc, err := c.SyscallConn()
		if err != nil {
			continue
		}
		_ = rc.Control(func(fd uintptr) { attach(int(fd), program) })
	}
}

func attach(fd int, program []unix.SockFilter) {
	_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// program returns a filter in classic BPF.
func (e *Endpoint) program(singleHop bool) (p []unix.SockFilter) {
	ttl, source := uint32(keepNet+8), uint32(keepNet+12)
	if e.local.Is6() {
		ttl, source = keepNet+7, keepNet+8
	}
	if singleHop {
		p = append(p,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: ttl},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: udpttl.MaxTTL},
			drop)
	}
	if len(e.byRemote) > maxFiltered {
		return append(p, take)
	}
	for remote := range e.byRemote {
		p = append(p, fromAddress(remote, source)...)
	}
	return append(p, drop)
}

var (
	drop = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	take = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16}
)

// fromAddress accepts a packet from an address, and otherwise falls through.
func fromAddress(a netip.Addr, source uint32) (p []unix.SockFilter) {
	words := a.AsSlice()
	for i := 0; i < len(words); i += 4 {
		left := uint8(len(words)-i)/4 - 1 // remaining words
		p = append(p,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: source + uint32(i)},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 2*left + 1, K: binary.BigEndian.Uint32(words[i:])})
	}
	return append(p, take)
}

// listen opens one of the ports.
func (e *Endpoint) listen(port uint16) error {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(e.local, port)))
	if err != nil {
		return err
	}
	e.sockets = append(e.sockets, c)
	return udpttl.Expect(c, e.local.Is4())
}
