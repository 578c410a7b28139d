package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/dataplane/memory"
	"github.com/fairlead/fairlead/schedule"
	"github.com/fairlead/fairlead/service"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Fixture {
		n := newNet(t)
		n.open(t, config())
		return conformer{n}
	})
}

type conformer struct{ *testNet }

func (c conformer) DataPlane() dataplane.DataPlane { return c.current }

func (c conformer) Reopen(t *testing.T) {
	must(t, c.current.Close())
	c.open(t, config())
}

// Forward sends a real packet and reads from what comes out where it went.
func (c conformer) Forward(t *testing.T, flow schedule.Flow, syn bool, length int) (memory.Decision, error) {
	t.Helper()
	in := packet{
		src: flow.Client.String(), dst: netip.AddrPortFrom(flow.VIP, flow.Port).String(),
		udp: flow.Protocol == service.UDP, flags: map[bool]string{true: "S", false: "A"}[syn],
	}
	in.payload = length - (len(in.bytes(t)) - 14)
	frame := in.bytes(t)
	before := c.current.Describe().Drops
	v, out := c.run(t, c.current, frame)
	dropped := func(reason string) bool {
		return v == drop && c.current.Describe().Drops[reason] == before[reason]+1
	}
	switch {
	case v == pass && bytes.Equal(out, frame):
		return memory.Decision{}, memory.ErrNotOurs
	case dropped("not-served"):
		return memory.Decision{}, memory.ErrNotServed
	case dropped("no-backend"):
		return memory.Decision{}, memory.ErrNoServer
	case v != redirect:
		return memory.Decision{}, fmt.Errorf("verdict %v, drops %v", v, c.current.Describe().Drops)
	}
	return c.decide(t, flow, syn, out)
}

func (c conformer) decide(t *testing.T, flow schedule.Flow, syn bool, frame []byte) (d memory.Decision, err error) {
	t.Helper()
	parsed := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	dst, option, port := readFirstIP(t, parsed)
	held, err := c.DataPlane().List()
	must(t, err)
	for _, f := range held {
		if f.Key != flow.Key {
			continue
		}
		for _, b := range f.Backends {
			if b.Addr.Addr() == dst && (f.Method == service.Tunnel || port == b.Addr.Port()) {
				d.Server = b.Addr
			}
		}
	}
	if !d.Server.IsValid() {
		return d, fmt.Errorf("went to %s, port %d, where no backend is", dst, port)
	}
	if len(option) > 0 && option[0] == netip.AddrPortFrom(flow.VIP, flow.Port) {
		option = option[1:] // what a node is to restore
	}
	d.Older = option
	return d, nil
}

// readFirstIP gives the destination of the first IP header, the Fairlead option
// in it, and the port behind it, where it is no tunnel.
func readFirstIP(t *testing.T, p gopacket.Packet) (dst netip.Addr, option []netip.AddrPort, port uint16) {
	t.Helper()
	var behind []byte
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		dst, _ = netip.AddrFromSlice(ip.DstIP.To4())
		behind = ip.Payload
		if len(ip.Options) > 0 && ip.Options[0].OptionType == 0x9e {
			option = readEndpoints(ip.Options[0].OptionData, 4)
		}
	case *layers.IPv6:
		dst, _ = netip.AddrFromSlice(ip.DstIP)
		behind = ip.Payload
		if ip.NextHeader == layers.IPProtocolIPv6Destination {
			option = readEndpoints(behind[4:4+behind[3]], 16)
			behind = behind[8*(int(behind[1])+1):]
		}
	default:
		t.Fatalf("no IP packet: %v", p)
	}
	return dst, option, binary.BigEndian.Uint16(behind[2:])
}

func readEndpoints(b []byte, addr int) (all []netip.AddrPort) {
	for ; len(b) >= addr+2; b = b[addr+2:] {
		a, _ := netip.AddrFromSlice(b[:addr])
		all = append(all, netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[addr:])))
	}
	return all
}
