package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/dataplane/memory"
	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/schedule"
	"github.com/fairlead/fairlead/service"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Fixture {
		n := newNet(t)
		n.nearServers(t)
		n.open(t, config())
		return conformer{n, t}
	})
}

// serversNear is how many servers of the stories are on eth0's own segment, as
// dr needs them: 172.16.1.1 and fd10::1 and those after them.
const serversNear = 12

func macNear(i int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 2, byte(i)} }

func (n *testNet) nearServers(t *testing.T) {
	t.Helper()
	testkit.Do(t, n.balancer, func() error {
		for _, p := range []string{"172.16.1.0/24", "fd10::/112"} {
			_, dst, err := net.ParseCIDR(p)
			must(t, err)
			route(t, netlink.Route{LinkIndex: int(n.eth0), Dst: dst, Scope: netlink.SCOPE_LINK})
		}
		for i := 1; i <= serversNear; i++ {
			neighbour(t, n.eth0, fmt.Sprintf("172.16.1.%d", i), macNear(i))
			neighbour(t, n.eth0, fmt.Sprintf("fd10::%x", i), macNear(i))
		}
		return nil
	})
}

type conformer struct {
	*testNet
	story *testing.T // which the data plane outlives the parts of
}

func (c conformer) DataPlane() dataplane.DataPlane { return c.current }

func (c conformer) Reopen(t *testing.T) {
	t.Helper()
	must(t, c.current.Close())
	c.open(c.story, config())
}

// Forward sends a real packet and reads from what comes out where it went.
func (c conformer) Forward(t *testing.T, flow schedule.Flow, opens bool, length int) (memory.Decision, error) {
	t.Helper()
	in := packet{
		src: flow.Client.String(), dst: netip.AddrPortFrom(flow.VIP, flow.Port).String(),
		udp: flow.Protocol == service.UDP, sctp: flow.Protocol == service.SCTP, flags: map[bool]string{true: "S", false: "A"}[opens],
	}
	in.payload = length - (len(in.bytes(t)) - 14)
	frame := in.bytes(t)
	before := c.current.Describe().Drops
	v, out := c.run(t, c.current, frame)
	switch {
	case v == pass && bytes.Equal(out, frame):
		return memory.Decision{}, memory.ErrNotOurs
	case v == drop:
		return memory.Decision{}, c.whyDropped(before)
	case v != redirect:
		return memory.Decision{}, fmt.Errorf("verdict %v", v)
	}
	return c.decide(t, flow, out)
}

// whyDropped gives the reason that has been counted since.
func (c conformer) whyDropped(before map[string]uint64) error {
	for reason, n := range c.current.Describe().Drops {
		if n == before[reason] {
			continue
		}
		if err, ok := memory.Drops[reason]; ok {
			return err
		}
		return fmt.Errorf("dropped: %s", reason)
	}
	return errors.New("dropped, and not counted")
}

func (c conformer) decide(t *testing.T, flow schedule.Flow, frame []byte) (d memory.Decision, err error) {
	t.Helper()
	dst, option, port := readFirstIP(t, gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default))
	held, err := c.DataPlane().List()
	must(t, err)
	for _, f := range held {
		if !covers(f.Key, flow) {
			continue
		}
		for _, b := range f.Backends {
			there := b.Addr.Addr() == dst
			if f.Method == service.DR {
				there = bytes.Equal(frame[:6], macNear(int(b.Addr.Addr().AsSlice()[b.Addr.Addr().BitLen()/8-1])))
			}
			if there && (f.Method == service.Tunnel || port == asAddressed(b.Addr, flow).Port()) {
				d.Server = asAddressed(b.Addr, flow)
			}
		}
	}
	if !d.Server.IsValid() {
		return d, fmt.Errorf("went to %s, port %d, where no backend is", dst, port)
	}
	if len(option) > 0 && option[0] == netip.AddrPortFrom(flow.VIP, flow.Port) {
		option = option[1:] // what a node is to restore
	}
	for _, e := range option {
		d.Older = append(d.Older, asAddressed(e, flow))
	}
	return d, nil
}

// covers says that a flow may be a frontend's.
func covers(k service.Key, flow schedule.Flow) bool {
	last := max(k.Port, k.Last)
	return k.VIP == flow.VIP && k.Port <= flow.Port && flow.Port <= last && (k.Protocol == flow.Protocol || k.Protocol == service.AnyProtocol)
}

// asAddressed gives a server without a port the flow's own.
func asAddressed(server netip.AddrPort, flow schedule.Flow) netip.AddrPort {
	if server.Port() == 0 {
		return netip.AddrPortFrom(server.Addr(), flow.Port)
	}
	return server
}

// readFirstIP gives the destination of the first IP header, the list of
// endpoints in it or in GUE, and the port behind it, where it is no tunnel.
func readFirstIP(t *testing.T, p gopacket.Packet) (dst netip.Addr, list []netip.AddrPort, port uint16) {
	t.Helper()
	var behind []byte
	proto, size := layers.IPProtocolTCP, 4
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		dst, _ = netip.AddrFromSlice(ip.DstIP.To4())
		proto, behind = ip.Protocol, ip.Payload
		if len(ip.Options) > 0 && ip.Options[0].OptionType == 0x9e {
			list = readEndpoints(ip.Options[0].OptionData, size)
		}
	case *layers.IPv6:
		dst, _ = netip.AddrFromSlice(ip.DstIP)
		proto, behind, size = ip.NextHeader, ip.Payload, 16
		if proto == layers.IPProtocolIPv6Destination {
			list = readEndpoints(behind[4:4+behind[3]], size)
			proto, behind = layers.IPProtocol(behind[0]), behind[8*(int(behind[1])+1):]
		}
	default:
		t.Fatalf("no IP packet: %v", p)
	}
	port = binary.BigEndian.Uint16(behind[2:])
	if gue := behind[8:]; proto == layers.IPProtocolUDP && port == 6080 && gue[0]&31 > 0 && gue[4] == 0x9e {
		list = readEndpoints(gue[8:8+int(gue[5])*(size+2)], size)
	}
	return dst, list, port
}

func readEndpoints(b []byte, addr int) (all []netip.AddrPort) {
	for ; len(b) >= addr+2; b = b[addr+2:] {
		a, _ := netip.AddrFromSlice(b[:addr])
		all = append(all, netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[addr:])))
	}
	return all
}
