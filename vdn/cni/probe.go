package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise/l2/packet"
	"github.com/fairlead/fairlead/advertise/l2/wire"
)

// silence is how long an address must go unanswered before it counts as free. A host on the
// segment responds within a millisecond, and a busy node adds some delay. RFC 5227
// specifies seconds, which is too long for the start of a pod. The controller never leases
// an address twice, so the probe only detects hosts unknown to it.
const silence = 60 * time.Millisecond

// mostLate limits the frames read after the silence, which arrived in time on a node too
// busy to read them in time.
const mostLate = 256

// segment is a pod's device with its packet sockets, in the pod's namespace.
type segment struct {
	name    string
	mac     wire.MAC
	sockets map[bool]*os.File // keyed by whether it is IPv4
}

func openSegment(l netlink.Link, r *current.Result) (*segment, error) {
	s := &segment{name: l.Attrs().Name, mac: wire.MAC(l.Attrs().HardwareAddr), sockets: map[bool]*os.File{}}
	for _, a := range addresses(r) {
		if s.sockets[a.Is4()] != nil {
			continue
		}
		kind := uint16(wire.EtherTypeIPv6)
		if a.Is4() {
			kind = wire.EtherTypeARP
		}
		file, err := packet.Open(l.Attrs().Index, kind)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("packets of interface %s: %w", s.name, err)
		}
		s.sockets[a.Is4()] = file
	}
	return s, nil
}

func (s *segment) close() {
	for _, f := range s.sockets {
		f.Close()
	}
}

func addresses(r *current.Result) (all []netip.Addr) {
	for _, ip := range r.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// probe checks whether another host uses a pod's addresses (RFC 5227, RFC 4862), all
// concurrently. Without a carrier nobody can respond: probe returns false, and the kernel
// does duplicate address detection for IPv6 when the carrier comes up.
func (c *call) probe(p *pod, l netlink.Link, r *current.Result) (probed bool, err error) {
	now, err := p.links.LinkByIndex(l.Attrs().Index)
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", l.Attrs().Name, err)
	}
	if now.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 || len(now.Attrs().HardwareAddr) != len(wire.MAC{}) {
		return false, nil
	}
	s, err := openSegment(now, r)
	if err != nil {
		return false, err
	}
	defer s.close()
	for _, a := range addresses(r) {
		// A lost probe counts as unanswered.
		_, _ = s.sockets[a.Is4()].Write(wire.Probe(a, s.mac))
	}
	deadline := time.Now().Add(silence)
	var all errgroup.Group
	for _, a := range addresses(r) {
		all.Go(func() error {
			if by, used := s.answered(a, deadline); used {
				return fail(ErrTaken, "network %s: address %s is used by unknown host %s: remove it there, or exclude it from the ranges of the network", c.Network, a, by)
			}
			return nil
		})
	}
	err = all.Wait()
	return err == nil, err
}

// answered waits for a host that claims an address or probes for it.
func (s *segment) answered(a netip.Addr, deadline time.Time) (by wire.MAC, used bool) {
	socket := s.sockets[a.Is4()]
	if socket.SetReadDeadline(deadline) != nil {
		return by, false
	}
	frame := make([]byte, 2048)
	for late := 0; late < mostLate; {
		n, err := socket.Read(frame)
		if errors.Is(err, unix.ENETDOWN) { // reported once
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			late++
			n, err = readNow(socket, frame)
		}
		if err != nil {
			return by, false
		}
		m, err := wire.Parse(frame[:n])
		if err == nil && m.From != s.mac && (m.Sender == a || m.Probe() && m.Target == a) {
			return m.From, true
		}
	}
	return by, false
}

// readNow reads what a socket has queued, regardless of its deadline.
func readNow(socket *os.File, frame []byte) (n int, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	errControl := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), frame) })
	return n, errors.Join(err, errControl)
}

// announceAll announces a pod's addresses on the segment.
func announceAll(l netlink.Link, r *current.Result) error {
	if len(l.Attrs().HardwareAddr) != len(wire.MAC{}) || l.Attrs().Flags&net.FlagLoopback != 0 {
		return nil
	}
	s, err := openSegment(l, r)
	if err != nil {
		return err
	}
	defer s.close()
	for _, a := range addresses(r) {
		for _, frame := range wire.Announce(a, s.mac) {
			_, _ = s.sockets[a.Is4()].Write(frame) // lost without a carrier; neighbors resolve the address later
		}
	}
	return nil
}
