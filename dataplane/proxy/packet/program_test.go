package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/pktdump"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/testnet"
)

// The verdicts of programs.
const (
	untouched = -1 // TC_ACT_UNSPEC: it continues, modified or not
	dropped   = 2  // TC_ACT_SHOT
	sent      = 7  // TC_ACT_REDIRECT
)

// at is a program at a device of node A.
type at struct{ program, device string }

var (
	fromNetwork = at{packetProgFromOutside, "eth0"}
	fromPodC    = at{packetProgFromInside, "pod1"}
	toPodC      = at{packetProgLeaving, "pod1"}
	toNetwork   = at{packetProgLeaving, "eth0"}
)

// run passes a frame to a program, as its device would, and returns the result.
func (w *world) run(where at, frame []byte) (verdict int, out []byte) {
	w.t.Helper()
	var device netlink.Link
	w.do(w.nodeA, func() (err error) {
		device, err = netlink.LinkByName(where.device)
		return err
	})
	frame = slices.Clone(frame)
	copy(frame, device.Attrs().HardwareAddr) // it is for us
	return testnet.Run(w.t, w.nodeA, w.half.obj.hooked()[where.program].Program, device.Attrs().Index, frame)
}

func (w *world) frame(p pktgen.Packet) []byte {
	w.t.Helper()
	b, err := p.Frame()
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// pass passes a packet to a program and expects another. edits apply to both.
func (w *world) pass(name string, where at, in, out pktgen.Packet, verdict int, edits ...func([]byte) []byte) {
	w.t.Helper()
	frame, want := w.frame(in), w.frame(out)
	for _, edit := range edits {
		frame, want = edit(frame), edit(want)
	}
	got, b := w.run(where, frame)
	if got != verdict {
		w.t.Errorf("%s: verdict %d, want %d\n%s", name, got, verdict, w.state())
	}
	const macs = 12
	if !bytes.Equal(b[macs:], want[macs:]) {
		w.t.Errorf("%s: frame differs (-want +got):\n%s", name, cmp.Diff(dump(want[macs:]), dump(b[macs:])))
	}
}

func dump(b []byte) string {
	frame := append(make([]byte, 12), b...)
	return gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default).Dump() + pktdump.Line(frame)
}

// source returns the source of a frame.
func source(frame []byte) netip.AddrPort {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	addr, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
	ports := p.NetworkLayer().LayerPayload()
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(ports))
}

// exposeAll makes a service with all protocols at the cluster address.
func (w *world) exposeAll(v6 family, names string) {
	w.t.Helper()
	var set []proxy.Frontend
	for _, p := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		c := proxy.Choice{Targets: targets(v6, names)}
		set = append(set, proxy.Frontend{
			Key: proxy.Key{Addr: v6.of(clusterIP), Port: 80, Protocol: p}, Inside: c, Outside: c,
		})
	}
	if err := w.plane.Apply(set, nil); err != nil {
		w.t.Fatal(err)
	}
}

// noChecksum removes a UDP datagram's checksum.
func noChecksum(frame []byte) []byte {
	at := 14 + 20 + 6
	if frame[12] == 0x86 {
		at += 20
	}
	return append(append(slices.Clone(frame[:at]), 0, 0), frame[at+2:]...)
}

// longHeader puts an option or an extension header before the transport header.
func longHeader(frame []byte) []byte {
	if frame[12] == 0x86 {
		b := append(slices.Clone(frame[:54]), frame[20], 0, 1, 4, 0, 0, 0, 0)
		b[20] = 60 // destination options
		binary.BigEndian.PutUint16(b[18:], binary.BigEndian.Uint16(b[18:])+8)
		return append(b, frame[54:]...)
	}
	b := append(slices.Clone(frame[:34]), 1, 1, 1, 1) // no operation
	b[14]++
	binary.BigEndian.PutUint16(b[16:], binary.BigEndian.Uint16(b[16:])+4)
	b[24], b[25] = 0, 0
	sum := uint32(0)
	for i := 14; i < 38; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[24:], ^uint16(sum))
	return append(b, frame[34:]...)
}

func same(b []byte) []byte { return b }

// TestProtocols passes packets of each protocol, in both directions and on each path, to
// a port that differs from the service's. The kernels of the tests' world do not support
// SCTP.
func TestProtocols(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		vip := v6.at(clusterIP, 80)
		for i, tc := range []struct {
			name, protocol string
			edit           func([]byte) []byte
		}{
			{"TCP", "tcp", same}, {"UDP", "udp", same}, {"SCTP", "sctp", same}, {"no checksum", "udp", noChecksum},
			{"TCP behind a long header", "tcp", longHeader}, {"UDP behind a long header", "udp", longHeader},
			{"SCTP behind a long header", "sctp", longHeader},
		} {
			w.exposeAll(v6, "A")
			first := func(from, to netip.AddrPort, ttl int) pktgen.Packet {
				p := pktgen.Packet{From: from, To: to, Protocol: tc.protocol, TTL: ttl, Payload: 5, Opens: true}
				if tc.protocol == "tcp" {
					p.Flags = []string{"SYN"}
				}
				return p
			}
			next := func(from, to netip.AddrPort, ttl int) pktgen.Packet {
				return pktgen.Packet{From: from, To: to, Protocol: tc.protocol, TTL: ttl, Payload: 1001}
			}
			port := uint16(4000 + i)
			pod, target := v6.at(podCAddr, port), v6.at(podAAddr, 8080)
			w.pass(tc.name+" from a pod", fromPodC, first(pod, vip, 64), first(pod, target, 64), untouched, tc.edit)
			w.pass(tc.name+" continues", fromPodC, next(pod, vip, 64), next(pod, target, 64), untouched, tc.edit)
			w.pass(tc.name+" back to a pod", toPodC, next(target, pod, 63), next(vip, pod, 63), untouched, tc.edit)
			client := v6.at(clientAddr, port)
			w.pass(tc.name+" to a pod here", fromNetwork, first(client, vip, 60), first(client, target, 60), untouched, tc.edit)
			w.pass(tc.name+" from a pod here", toNetwork, next(target, client, 63), next(vip, client, 63), untouched, tc.edit)
			w.masked(v6, tc.name, tc.edit, first, next, port+100)
			w.own(v6, tc.name, tc.edit, first, next, port+200)
			w.looped(v6, tc.name, tc.edit, first, next, port+300)
		}
	})
}

type crafter func(from, to netip.AddrPort, ttl int) pktgen.Packet

// masked has an outside client of a pod on another node.
func (w *world) masked(v6 family, name string, edit func([]byte) []byte, first, next crafter, port uint16) {
	w.t.Helper()
	w.exposeAll(v6, "B")
	vip, client, target := v6.at(clusterIP, 80), v6.at(clientAddr, port), v6.at(podBAddr, 8080)
	verdict, out := w.run(fromNetwork, w.frame(first(client, vip, 60)))
	mask := source(out)
	if verdict != sent || mask.Addr() != v6.of(nodeAAddr) || mask.Port() >= nodePortFirst {
		w.t.Fatalf("%s: verdict %d, source %s\n%s", name, verdict, mask, w.state())
	}
	w.pass(name+" masked", fromNetwork, first(client, vip, 60), first(mask, target, 59), sent, edit)
	w.pass(name+" masked continues", fromNetwork, next(client, vip, 60), next(mask, target, 59), sent, edit)
	w.pass(name+" unmasked", fromNetwork, next(target, mask, 60), next(vip, client, 59), sent, edit)
}

// own has the node itself as the client.
func (w *world) own(v6 family, name string, edit func([]byte) []byte, first, next crafter, port uint16) {
	w.t.Helper()
	vip, node, target := v6.at(clusterIP, 80), v6.at(nodeAAddr, port), v6.at(podBAddr, 8080)
	w.pass(name+" from the node", toNetwork, first(node, vip, 64), first(node, target, 64), sent, edit)
	w.pass(name+" from the node continues", toNetwork, next(node, vip, 64), next(node, target, 64), sent, edit)
	w.pass(name+" back to the node", fromNetwork, next(target, node, 60), next(vip, node, 60), untouched, edit)
}

// looped has the node as the client of its own server: each sees the service.
func (w *world) looped(v6 family, name string, edit func([]byte) []byte, first, next crafter, port uint16) {
	w.t.Helper()
	w.exposeAll(v6, "H")
	vip, node := v6.at(clusterIP, 80), v6.at(nodeAAddr, port)
	client, server := v6.at(clusterIP, port), v6.at(nodeAAddr, 8080)
	w.pass(name+" to the node itself", toNetwork, first(node, vip, 64), first(client, server, 64), sent, edit)
	w.pass(name+" arrives", fromNetwork, first(client, server, 64), first(client, server, 64), untouched, edit)
	w.pass(name+" back to the node itself", toNetwork, next(server, client, 64), next(vip, node, 64), sent, edit)
	w.pass(name+" comes back", fromNetwork, next(vip, node, 64), next(vip, node, 64), untouched, edit)
	w.pass(name+" to the node itself continues", toNetwork, next(node, vip, 64), next(client, server, 64), sent, edit)
}

func syn(from, to netip.AddrPort) pktgen.Packet {
	return pktgen.Packet{From: from, To: to, Protocol: "tcp", Flags: []string{"SYN"}}
}

func ack(from, to netip.AddrPort) pktgen.Packet {
	return pktgen.Packet{From: from, To: to, Protocol: "tcp", Payload: 10}
}

// TestSameToTheTarget: a client uses one port for two services with the same endpoint,
// which would see them as one connection.
func TestSameToTheTarget(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "A", "A")
		client, target := v6.at(podCAddr, 4000), v6.at(podAAddr, 8080)
		w.pass("the first", fromPodC, syn(client, v6.at(clusterIP, 80)), syn(client, target), untouched)
		_, out := w.run(fromPodC, w.frame(syn(client, v6.at(loadIP, 80))))
		other := source(out)
		if other.Addr() != client.Addr() || other == client {
			w.t.Fatalf("the second comes from %s; want another port than %s", other, client)
		}
		w.pass("the first one's answer", toPodC, ack(target, client), ack(v6.at(clusterIP, 80), client), untouched)
		w.pass("the second one's answer", toPodC, ack(target, other), ack(v6.at(loadIP, 80), client), untouched)
		w.pass("the second again", fromPodC, ack(client, v6.at(loadIP, 80)), ack(other, target), untouched)
	})
}

// TestConnectionPastTheService opens one with the ports of an older one through the
// service.
func TestConnectionPastTheService(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "A", "A")
		vip, client, target := v6.at(clusterIP, 80), v6.at(podCAddr, 4000), v6.at(podAAddr, 8080)
		w.pass("through the service", fromPodC, syn(client, vip), syn(client, target), untouched)
		w.pass("past it", fromPodC, syn(client, target), syn(client, target), untouched)
		w.pass("its answer", toPodC, accept(target, client), accept(target, client), untouched)
		w.pass("the connection continues", toPodC, ack(target, client), ack(target, client), untouched)
	})
}

// accept is the SYN-ACK for syn.
func accept(from, to netip.AddrPort) pktgen.Packet {
	return pktgen.Packet{From: from, To: to, Protocol: "tcp", Flags: []string{"SYN", "ACK"}, Ack: 2, Payload: 10}
}

// TestForgedSYNDuringAHandshake: anyone can send a SYN to the endpoint, with the address
// of a client that is connecting to it through the service. The endpoint's SYN-ACK shows
// which of the two SYNs it has accepted.
func TestForgedSYNDuringAHandshake(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "A", "A")
		vip, client, target := v6.at(clusterIP, 80), v6.at(podCAddr, 4000), v6.at(podAAddr, 8080)
		forged := syn(client, target)
		forged.Seq = 0x12345678
		w.pass("through the service", fromPodC, syn(client, vip), syn(client, target), untouched)
		w.pass("a SYN past it", fromPodC, forged, forged, untouched)
		w.pass("accepted through it", toPodC, accept(target, client), accept(vip, client), untouched)
		w.pass("another SYN past it", fromPodC, forged, forged, untouched)
		w.pass("challenge ACK", toPodC, ack(target, client), ack(vip, client), untouched)
		w.pass("the client continues", fromPodC, ack(client, vip), ack(client, target), untouched)
	})
}

// TestForgedSYNPastTheService: anyone can send a SYN to the endpoint, with the client's
// address. An established flow continues as long as the endpoint continues it, and ends
// when it accepts that SYN.
func TestForgedSYNPastTheService(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "A", "A")
		vip, client, target := v6.at(clusterIP, 80), v6.at(podCAddr, 4000), v6.at(podAAddr, 8080)
		w.pass("through the service", fromPodC, syn(client, vip), syn(client, target), untouched)
		w.pass("accepted", toPodC, accept(target, client), accept(vip, client), untouched)
		w.pass("established", fromPodC, ack(client, vip), ack(client, target), untouched)
		w.pass("a SYN past it", fromPodC, syn(client, target), syn(client, target), untouched)
		w.pass("challenge ACK", toPodC, ack(target, client), ack(vip, client), untouched)
		w.pass("the flow continues", fromPodC, ack(client, vip), ack(client, target), untouched)
		w.pass("a SYN through the service", fromPodC, syn(client, vip), syn(client, target), untouched)
		w.pass("accepted for it", toPodC, accept(target, client), accept(vip, client), untouched)
		w.pass("a SYN past it again", fromPodC, syn(client, target), syn(client, target), untouched)
		w.pass("accepted past it", toPodC, accept(target, client), accept(target, client), untouched)
		w.pass("and continues past it", toPodC, ack(target, client), ack(target, client), untouched)
	})
}

// TestLastHop: the TTL of a packet that the program forwards expires.
func TestLastHop(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "B", "B")
		p := syn(v6.at(clientAddr, 4000), v6.at(clusterIP, 80))
		p.TTL = 1
		before := w.counted("expired")
		verdict, out := w.run(fromNetwork, w.frame(p))
		if verdict != sent || w.counted("expired") != before+1 {
			w.t.Errorf("verdict %d, want an answer", verdict)
		}
		if d := dump(out[12:]); !strings.Contains(d, "TimeExceeded") || source(out).Addr() != v6.of(clusterIP) {
			w.t.Errorf("want a time exceeded error from the VIP, got %s", d)
		}
	})
}

// TestCutFrames passes every shorter prefix of a valid frame to every program.
func TestCutFrames(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.exposeAll(v6, "A")
		shortest := 14 + 20 // the kernel's minimum for test runs
		if v6 {
			shortest = 14 + 40
		}
		for _, protocol := range []string{"tcp", "udp", "sctp"} {
			p := pktgen.Packet{From: v6.at(clientAddr, 4000), To: v6.at(clusterIP, 80), Protocol: protocol, Payload: 30, Opens: true}
			if protocol == "tcp" {
				p.Flags = []string{"SYN"}
			}
			whole := w.frame(p)
			for cut := shortest; cut < len(whole); cut++ {
				for _, where := range []at{fromNetwork, fromPodC, toNetwork} {
					verdict, out := w.run(where, whole[:cut])
					if verdict != untouched || !bytes.Equal(out[12:], whole[12:cut]) {
						w.t.Fatalf("%s cut to %d of %d bytes: verdict %d\n%s", protocol, cut, len(whole), verdict, dump(out[12:]))
					}
				}
			}
		}
	})
}
