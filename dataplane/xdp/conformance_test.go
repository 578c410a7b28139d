package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/lab/conformance"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestConformance(t *testing.T) { conforms(t, spacious()).Recorded(t, "xdp") }

// All rings with fewer different slots than a byte can count are narrow.
func TestConformanceWithNarrowRings(t *testing.T) {
	c := spacious()
	c.WideRings = 1
	conforms(t, c)
}

func conforms(t *testing.T, c Config) conformance.Outcomes {
	return conformance.Run(t, func(t *testing.T) conformance.Fixture {
		n := newNet(t)
		testkit.Do(t, n.balancer, func() error { return addServers(t, n.eth0) })
		n.open(t, c)
		return conformer{n, conformance.Programmed{}}
	})
}

// spacious has room for all frontends of a forwarding mode together, and for as many
// flows as the reference implementation, which forgets none: no set of the table
// overflows.
func spacious() Config {
	c := config()
	c.MaxFlows, c.MaxFrontends = 1<<16, 256
	return c
}

// addServers puts the suite's backends on eth0's segment, as mode dr needs them.
func addServers(t *testing.T, eth0 uint32) error {
	t.Helper()
	nic, err := netlink.LinkByIndex(int(eth0))
	must(t, err)
	for prefix, server := range map[string]string{"172.16.1.254/24": "172.16.1.%d", "fd10::fe/64": "fd10::%x"} {
		addr, err := netlink.ParseAddr(prefix)
		must(t, err)
		addr.Flags = 2 // IFA_F_NODAD
		must(t, netlink.AddrAdd(nic, addr))
		for i := range byte(12) {
			neighbor(t, eth0, fmt.Sprintf(server, i+1), serverMAC(i+1))
		}
	}
	return nil
}

func serverMAC(i byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 9, i} }

type conformer struct {
	*testNet
	programmed conformance.Programmed
}

// noted is the data plane, and records its input.
type noted struct {
	*DataPlane
	conformance.Programmed
}

func (n noted) Upsert(f desired.Frontend) error {
	err := n.DataPlane.Upsert(f)
	if err == nil {
		n.Programmed[f.Key] = f
	}
	return err
}

func (n noted) Delete(k service.Key) error {
	err := n.DataPlane.Delete(k)
	if err == nil {
		delete(n.Programmed, k)
	}
	return err
}

func (c conformer) DataPlane() dataplane.DataPlane { return noted{c.current, c.programmed} }

func (c conformer) Reopen(t *testing.T) {
	must(t, c.current.Close())
	c.open(t, spacious())
}

// Forward sends a real packet and determines its destination from the output.
func (c conformer) Forward(t *testing.T, flow schedule.Flow, opens bool, length int) (fake.Decision, error) {
	t.Helper()
	return c.send(t, flow, frameOf(t, flow, opens, length))
}

// Finish implements conformance.Finisher.
func (c conformer) Finish(t *testing.T, flow schedule.Flow) (fake.Decision, error) {
	t.Helper()
	fin := packet{src: flow.Client.String(), dst: netip.AddrPortFrom(flow.VIP, flow.Port).String(), flags: "FA"}
	return c.send(t, flow, fin.bytes(t))
}

// send sends a packet of a flow, and returns its destination.
func (c conformer) send(t *testing.T, flow schedule.Flow, frame []byte) (fake.Decision, error) {
	t.Helper()
	before := c.current.Describe().Drops
	v, out := c.run(t, c.current, frame)
	if v == pass && bytes.Equal(out, frame) {
		return fake.Decision{}, fake.ErrNotOurs
	}
	after := c.current.Describe().Drops
	for name, reason := range fake.Drops {
		if v == drop && after[name] == before[name]+1 {
			return fake.Decision{}, reason
		}
	}
	if v != redirect {
		return fake.Decision{}, fmt.Errorf("verdict %v; drops were %v, are %v", v, before, after)
	}
	return c.decide(t, flow, out)
}

// frameOf returns a flow's packet, with length bytes of IP packet.
func frameOf(t *testing.T, flow schedule.Flow, opens bool, length int) []byte {
	t.Helper()
	in := packet{
		src: flow.Client.String(), dst: netip.AddrPortFrom(flow.VIP, flow.Port).String(),
		udp: flow.Protocol != service.TCP, flags: map[bool]string{true: "S", false: "A"}[opens],
	}
	in.payload = length - (len(in.bytes(t)) - 14)
	frame := in.bytes(t)
	if flow.Protocol == service.SCTP {
		toSCTP(frame, opens)
	}
	return frame
}

// toSCTP turns a UDP packet into SCTP, with one chunk: INIT or DATA.
func toSCTP(frame []byte, opens bool) {
	ip, body := frame[14:], 20
	if ip[0]>>4 == 4 {
		ip[9] = byte(service.SCTP)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], sum16(ip[:20]))
	} else {
		ip[6], body = byte(service.SCTP), 40
	}
	s := ip[body:]
	clear(s[4:])
	if opens {
		s[12] = 1
	} else {
		s[4] = 7 // the verification tag, which INIT does not have
	}
	binary.BigEndian.PutUint16(s[14:], uint16(len(s)-12))
	binary.LittleEndian.PutUint32(s[8:], crc32.Checksum(s, crc32.MakeTable(crc32.Castagnoli)))
}

// decide determines a packet's backend: by its first destination or, with dr, by the MAC
// address.
func (c conformer) decide(t *testing.T, flow schedule.Flow, frame []byte) (d fake.Decision, err error) {
	t.Helper()
	way := readWay(t, frame)
	f, _ := c.programmed.Find(flow.Key)
	for _, b := range f.Backends {
		server := b.Addr
		if server.Port() == 0 {
			server = netip.AddrPortFrom(server.Addr(), flow.Port)
		}
		last := server.Addr().As16()[15]
		byMAC := f.Method == service.DR && way.dst == flow.VIP && bytes.Equal(frame[:6], serverMAC(last))
		byAddr := way.dst == server.Addr() && (f.Method == service.Tunnel || way.port == server.Port())
		if byMAC || byAddr {
			d.Server = server
		}
	}
	if !d.Server.IsValid() {
		return d, fmt.Errorf("%s went to %s, port %d, MAC %s, where no backend is", f.Method, way.dst, way.port, net.HardwareAddr(frame[:6]))
	}
	if len(way.older) > 0 && way.older[0] == netip.AddrPortFrom(flow.VIP, flow.Port) {
		way.older = way.older[1:] // for the node to restore
	}
	for _, o := range way.older {
		if o.Port() == 0 {
			o = netip.AddrPortFrom(o.Addr(), flow.Port)
		}
		d.Older = append(d.Older, o)
	}
	return d, nil
}

// way is a packet's destination information.
type way struct {
	dst   netip.Addr
	port  uint16 // if it is no tunnel
	older []netip.AddrPort
}

// readWay reads the first IP header and the Fairlead option in it or after it.
func readWay(t *testing.T, frame []byte) (w way) {
	t.Helper()
	var behind []byte
	var next layers.IPProtocol
	addr := 4
	switch ip := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default).NetworkLayer().(type) {
	case *layers.IPv4:
		w.dst, _ = netip.AddrFromSlice(ip.DstIP.To4())
		behind, next = ip.Payload, ip.Protocol
		if len(ip.Options) > 0 && ip.Options[0].OptionType == 0x9e {
			w.older = readEndpoints(ip.Options[0].OptionData, addr)
		}
	case *layers.IPv6:
		addr = 16
		w.dst, _ = netip.AddrFromSlice(ip.DstIP)
		behind, next = ip.Payload, ip.NextHeader
		if next == layers.IPProtocolIPv6Destination {
			w.older = readEndpoints(behind[4:4+behind[3]], addr)
			next = layers.IPProtocol(behind[0])
			behind = behind[8*(int(behind[1])+1):]
		}
	default:
		t.Fatalf("no IP packet: %x", frame)
	}
	w.port = binary.BigEndian.Uint16(behind[2:])
	if next == layers.IPProtocolUDP && w.port == guePort {
		if private := behind[12 : 12+4*int(behind[8]&31)]; len(private) > 0 && private[0] == 0x9e {
			w.older = readEndpoints(private[4:4+int(private[1])*(addr+2)], addr)
		}
	}
	return w
}

// guePort is GUE's default port.
const guePort = 6080

func readEndpoints(b []byte, addr int) (all []netip.AddrPort) {
	for ; len(b) >= addr+2; b = b[addr+2:] {
		a, _ := netip.AddrFromSlice(b[:addr])
		all = append(all, netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[addr:])))
	}
	return all
}
