package peers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/lab/bench/xdpbench"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// checks is the number of packets whose result is compared before a program is timed.
const checks = 32

// Lengths of headers, and where they begin in a frame.
const (
	ethernet = 14
	ipv4     = 20
)

// check sends packets, and returns an error unless each left in an IPIP packet to a
// backend of its VIP, or unchanged if its destination is not a VIP.
func (p *program) check(s scenario, w workload) error {
	if p.floor { // the bare load balancers have one set of backends, or none
		if w.want == pass {
			return nil
		}
		s.backends, s.pool = xdpbench.BareBackends, xdpbench.BareBackends
	}
	for range checks {
		frame, err := p.rig.Frame()
		if err == nil && w.want == pass {
			err = unchanged(frame)
		} else if err == nil {
			err = encapsulated(frame, s)
		}
		if err != nil {
			return fmt.Errorf("%s: its output is wrong: %w: % x", p.name, err, frame)
		}
	}
	return nil
}

func unchanged(frame []byte) error {
	if len(frame) != xdpbench.FrameBytes || frame[ethernet+9] != 6 {
		return fmt.Errorf("%d bytes, not %d, or not TCP any longer", len(frame), xdpbench.FrameBytes)
	}
	return nil
}

func encapsulated(frame []byte, s scenario) error {
	if len(frame) != xdpbench.FrameBytes+ipv4 {
		return fmt.Errorf("%d bytes, not %d", len(frame), xdpbench.FrameBytes+ipv4)
	}
	outer, inner := frame[ethernet:], frame[ethernet+ipv4:]
	switch {
	case !bytes.Equal(frame[12:14], []byte{8, 0}) || outer[0] != 0x45 || outer[9] != 4:
		return fmt.Errorf("not an IPv4 packet with protocol 4 (IPIP)")
	case binary.BigEndian.Uint16(outer[2:]) != uint16(len(outer)):
		return fmt.Errorf("total length %d, not %d", binary.BigEndian.Uint16(outer[2:]), len(outer))
	case wire.Fold(wire.Sum(outer[:ipv4])) != 0xffff:
		return fmt.Errorf("a wrong checksum")
	case inner[0] != 0x45 || int(binary.BigEndian.Uint16(inner[2:])) != len(inner) || inner[12] != 11:
		return fmt.Errorf("the inner packet is not the one that was sent")
	}
	vip, backend := netip.AddrFrom4([4]byte(inner[16:])), netip.AddrFrom4([4]byte(outer[16:]))
	for i := range s.vips {
		if vip != xdpbench.VIP(i) {
			continue
		}
		for _, n := range s.backendsOf(i) {
			if backend == xdpbench.Backend(n) {
				return nil
			}
		}
		return fmt.Errorf("%s is no backend of %s", backend, vip)
	}
	return fmt.Errorf("%s is not a VIP", vip)
}
