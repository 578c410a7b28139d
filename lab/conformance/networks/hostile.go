package networks

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// forgery is a frame that a1 must not be able to send.
type forgery struct {
	name   string
	frame  []byte
	reason string
}

// Multicast and broadcast addresses whose packets every host accepts.
var (
	allNodes   = netip.MustParseAddr("ff02::1")
	mldRouters = netip.MustParseAddr("ff02::16")
	everybody  = netip.MustParseAddr("255.255.255.255")
)

// linkLocal returns the link-local address derived from a MAC address (RFC 4291).
func linkLocal(m wire.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// forgeries returns all forgeries. Those with enough room contain mark.
func (w *world) forgeries(mark []byte) []forgery {
	return slices.Concat(w.addressForgeries(mark), w.frameForgeries(mark), w.neighborForgeries(mark))
}

// udp returns a packet that a1 may send to a2, modified by changes.
func (w *world) udp(mark []byte, family int, changes ...func(p *pktgen.Packet)) []byte {
	p := pktgen.Packet{From: netip.AddrPortFrom(w.addr("a1", family), 4444), To: netip.AddrPortFrom(w.addr("a2", family), port), Protocol: "udp", Payload: 32}
	for _, change := range changes {
		change(&p)
	}
	b := w.frame(w.podMAC("a2"), w.podMAC("a1"), p)
	copy(b[len(b)-len(mark):], mark)
	return b
}

func from(a netip.Addr) func(p *pktgen.Packet) {
	return func(p *pktgen.Packet) { p.From = netip.AddrPortFrom(a, 4444) }
}

func to(a netip.Addr) func(p *pktgen.Packet) {
	return func(p *pktgen.Packet) { p.To = netip.AddrPortFrom(a, port) }
}

// aLater makes the packet a non-first fragment.
func aLater(p *pktgen.Packet) { p.Fragment, p.Offset, p.More = true, 64, true }

// addressForgeries returns the forgeries with addresses.
func (w *world) addressForgeries(mark []byte) (all []forgery) {
	add := func(reason, name string, frame []byte) { all = append(all, forgery{name, frame, reason}) }
	for family := range 2 {
		a2, b1, b2 := w.addr("a2", family), w.addr("b1", family), w.addr("b2", family)
		stolen, foreign := w.udp(mark, family), w.podMAC("b1")
		copy(stolen[6:], foreign[:])
		add(enforce.Spoofed, "another pod's MAC address", stolen)
		add(enforce.Spoofed, "another address of its network", w.udp(mark, family, from(a2)))
		add(enforce.Spoofed, "an address of another network", w.udp(mark, family, from(b1)))
		add(enforce.Spoofed, "an external address", w.udp(mark, family, from(otherPlaces[family])))
		add(enforce.Isolated, "a packet to another network, by its own peer's MAC address", w.udp(mark, family, to(b2)))
		add(enforce.Spoofed, "a non-first fragment from another pod's address", w.udp(mark, family, aLater, from(a2)))
		add(enforce.Isolated, "a non-first fragment to another network", w.udp(mark, family, aLater, to(b1)))
	}
	mapped := func(src, dst netip.Addr) []byte {
		b, s, d := w.udp(mark, 1), src.As16(), dst.As16()
		copy(b[14+8:], s[:])
		copy(b[14+24:], d[:])
		return b
	}
	add(enforce.Spoofed, "its IPv4 address in IPv6", mapped(w.addr("a1", 0), w.addr("a2", 0)))
	add(enforce.Outside, "a packet to an IPv4 address in IPv6", mapped(w.addr("a1", 1), w.addr("a2", 0)))
	carrier := w.udp(mark, 1, to(w.addr("b1", 1)))
	carrier[14+6] = unix.IPPROTO_IPIP
	add(enforce.Isolated, "IPv4 in IPv6 to another network", carrier)
	add(enforce.Spoofed, "the unspecified address", w.udp(mark, 0, from(netip.IPv4Unspecified())))
	return all
}

// frameForgeries returns the forgeries with frame formats, broadcast and multicast.
func (w *world) frameForgeries(mark []byte) (all []forgery) {
	add := func(reason, name string, frame []byte) { all = append(all, forgery{name, frame, reason}) }
	for family := range 2 {
		tag := func(kind, tag uint16) []byte {
			b := w.udp(mark, family, func(p *pktgen.Packet) { p.VLAN = 7 })
			binary.BigEndian.PutUint16(b[12:], kind)
			binary.BigEndian.PutUint16(b[14:], tag)
			return b
		}
		add(enforce.Isolated, "a VLAN tag", tag(0x8100, 7))
		add(enforce.Isolated, "a priority tag", tag(0x8100, 5<<13))
		add(enforce.Isolated, "a provider VLAN tag", tag(0x88a8, 7))
	}
	add(enforce.Spoofed, "a truncated IPv4 header", w.udp(mark, 0)[:14+12])
	add(enforce.Spoofed, "a truncated IPv6 header", w.udp(mark, 1)[:14+30])
	add(enforce.Outside, "a DHCP offer to all", toAll(w.udp(mark, 0, func(p *pktgen.Packet) {
		p.From, p.To = netip.AddrPortFrom(w.addr("a1", 0), 67), netip.AddrPortFrom(everybody, 68)
	})))
	add(enforce.Isolated, "a broadcast into another network", toAll(w.udp(mark, 0, to(netip.MustParseAddr("10.2.0.255")))))
	add(enforce.Outside, "a packet to a multicast group", toAll(w.udp(mark, 0, to(netip.MustParseAddr("224.0.0.251")))))
	add(enforce.Outside, "a packet to all nodes", toAll(w.udp(mark, 1, to(allNodes))))
	for name, kind := range map[string]uint16{"a spanning tree frame": 38, "LLDP": 0x88cc, "RARP": 0x8035, "MPLS": 0x8847} {
		b := toAll(w.udp(mark, 0))
		binary.BigEndian.PutUint16(b[12:], kind)
		add(enforce.Isolated, name, b)
	}
	return all
}

// toAll makes a frame a broadcast.
func toAll(b []byte) []byte {
	copy(b, wire.Broadcast[:])
	return b
}

// neighborForgeries returns the forgeries with ARP, neighbor discovery, and packets that hosts
// take for it.
func (w *world) neighborForgeries(mark []byte) (all []forgery) {
	own, other := w.podMAC("a1"), w.podMAC("a2")
	link := linkLocal(own)
	add := func(reason, name string, frame ...[]byte) {
		for _, b := range frame {
			all = append(all, forgery{name, b, reason})
		}
	}
	gateways := []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd01::1")}
	for family, gateway := range gateways {
		add(enforce.Spoofed, "an announcement of the gateway's address", wire.Announce(gateway, own)...)
		for _, b := range wire.Announce(w.addr("a1", family), other) {
			copy(b[6:], own[:])
			add(enforce.Spoofed, "an announcement of its own address for another", b)
		}
		add(enforce.Spoofed, "a reply for the gateway's address", wire.Answer(wire.Message{Target: gateway, Asks: true, Sender: w.addr("a2", family), From: other}, own))
	}
	add(enforce.Isolated, "a probe of another network's address", wire.Probe(w.addr("b1", 0), own))
	add(enforce.Spoofed, "a probe of another's address", wire.Probe(w.addr("a2", 1), own))

	// nd returns a message with 4 bytes of flags, from a1's MAC address to all nodes.
	nd := func(from, to netip.Addr, kind, hops byte, body ...byte) []byte {
		return ethernet(wire.MAC{0x33, 0x33, 0, 0, 0, 1}, own, icmp(from, to, kind, 0, hops, append(make([]byte, 4), body...)))
	}
	target := func(a netip.Addr, rest ...byte) []byte { return append(a.AsSlice(), rest...) }
	mac := func(kind byte, m wire.MAC) []byte { return append([]byte{kind, 1}, m[:]...) }
	advert := append([]byte{0, 0, 0, 0, 0, 0, 0, 0}, mark...)
	add(enforce.Spoofed, "a router's advertisement", nd(link, allNodes, 134, 255, advert...))
	add(enforce.Spoofed, "a router's advertisement behind a header", behind(nd(link, allNodes, 134, 255, advert...), unix.IPPROTO_DSTOPTS, 0, 1, 4, 0, 0, 0, 0))
	add(enforce.Spoofed, "a router's advertisement in a fragment", behind(nd(link, allNodes, 134, 255, advert...), unix.IPPROTO_FRAGMENT, 0, 0, 1, 0, 0, 0, 7))
	add(enforce.Spoofed, "an advertisement in a fragment", behind(nd(w.addr("a1", 1), allNodes, 136, 255, target(gateways[1], mark...)...), unix.IPPROTO_FRAGMENT, 0, 0, 1, 0, 0, 0, 7))
	add(enforce.Spoofed, "a redirect", nd(link, w.addr("a2", 1), 137, 255, target(gateways[1], target(netip.MustParseAddr("2001:db8::1"), mark...)...)...))
	add(enforce.Spoofed, "an advertisement of the gateway by its own address", nd(w.addr("a1", 1), allNodes, 136, 255, target(gateways[1], mac(2, own)...)...))
	add(enforce.Spoofed, "a solicitation for another's MAC address", nd(w.addr("a1", 1), allNodes, 135, 255, target(w.addr("a2", 1), mac(1, other)...)...))
	add(enforce.Isolated, "a solicitation of another network's address", nd(w.addr("a1", 1), allNodes, 135, 255, target(w.addr("b1", 1), mac(1, own)...)...))
	for _, hops := range []byte{64, 255} {
		add(enforce.Isolated, "a solicitation to another network", nd(w.addr("a1", 1), w.addr("b2", 1), 135, hops, target(w.addr("a2", 1))...))
		add(enforce.Outside, "a router's solicitation to outside", nd(w.addr("a1", 1), knownPlaces[1], 133, hops, mac(1, own)...))
	}
	add(enforce.Isolated, "data to the MLD routers", behind(nd(link, mldRouters, 128, 1, mark...), unix.IPPROTO_HOPOPTS, 0, 5, 2, 0, 0, 1, 0))
	add(enforce.Isolated, "data from its link-local address", nd(link, linkLocal(w.podMAC("b1")), 128, 64, mark...))
	if w.rig.Lengths {
		add(enforce.Spoofed, "a router's solicitation for another's MAC address", nd(link, allNodes, 133, 255, mac(1, other)...))
		add(enforce.Spoofed, "data in a solicitation", nd(link, allNodes, 135, 255, target(link, append(mac(1, own), append([]byte{253, 3}, append(mark, mark...)...)...)...)...))
		add(enforce.Spoofed, "data in a router solicitation", nd(link, allNodes, 133, 255, append(mac(1, own), append([]byte{253, 2}, mark...)...)...))
	}
	return all
}

// behind inserts an extension header of eight bytes before the payload of an IPv6 packet
// in a frame.
func behind(b []byte, header byte, rest ...byte) []byte {
	const at = 14 + 40
	next := b[14+6]
	b[14+6] = header
	binary.BigEndian.PutUint16(b[14+4:], binary.BigEndian.Uint16(b[14+4:])+8)
	return slices.Insert(b, at, append([]byte{next}, rest...)...)
}

// hostile lets a1 send every forgery, and checks that no host receives it.
func hostile(w *world) {
	w.apply(nothing, nothing)
	mark := []byte("fairlead")
	sniffers := map[string]*sniffer{"gateway": w.packets(w.Host("gateway"), domain.Uplink)}
	for _, name := range []string{"a2", "b1", "b2"} {
		sniffers[name] = w.packets(w.Host(name), w.Pods[name].Att.Interface)
	}
	for _, reason := range []string{enforce.Spoofed, enforce.Isolated, enforce.Outside} {
		before, sent := w.drops(reason), uint64(0)
		for _, forgery := range w.forgeries(mark) {
			if forgery.reason == reason {
				w.send("a1", forgery.frame)
				sent++
			}
		}
		testkit.Eventually(w.t, patience, func() error {
			if n := w.drops(reason) - before; n < sent {
				return fmt.Errorf("%d frames sent that are %s, %d dropped", sent, reason, n)
			}
			return nil
		})
	}
	w.receivesOnly(sniffers, mark)
}

// receivesOnly checks that the sniffers receive an allowed packet that was sent after the
// forbidden ones, and none of those.
func (w *world) receivesOnly(sniffers map[string]*sniffer, mark []byte) {
	fine := []byte("all fine")
	good := w.udp(fine, 0)
	testkit.Eventually(w.t, patience, func() error {
		w.send("a1", good)
		time.Sleep(time.Millisecond)
		if !sniffers["a2"].received(fine) {
			return fmt.Errorf("a2 does not receive allowed packets from a1")
		}
		return nil
	})
	const whole = 60 // bytes; shorter frames are a prefix of others
	for name, e := range sniffers {
		for _, forgery := range w.forgeries(mark) {
			if len(forgery.frame) >= whole && e.received(forgery.frame) {
				w.t.Errorf("%s receives from a1: %s", name, forgery.name)
			}
		}
		if e.received(mark) {
			w.t.Errorf("%s receives packets that a1 must not send", name)
		}
	}
}

func (w *world) send(pod string, frame []byte) {
	w.sendFrame(w.Host(pod), w.Pods[pod].Att.Interface, 0, frame)
}

// toEverybody lets a1 send broadcast and multicast where that is allowed. Only hosts of
// its own network may receive it.
func toEverybody(w *world) {
	groups := []netip.Addr{everybody, allNodes}
	var open vdn.Slice
	for _, a := range groups {
		open.AllowedCIDRs = append(open.AllowedCIDRs, netip.PrefixFrom(a, a.BitLen()))
	}
	w.apply(open, nothing)
	for family, group := range groups {
		p := pktgen.Packet{From: netip.AddrPortFrom(w.addr("a1", family), 4444), To: netip.AddrPortFrom(group, port), Protocol: "udp", Payload: 500}
		frame := toAll(w.frame(wire.MAC{}, w.podMAC("a1"), p))
		got := func(name string) uint64 { _, udp := w.sinks[name].Received(); return udp }
		before := map[string]uint64{"a2": got("a2"), "b1": got("b1"), "b2": got("b2")}
		testkit.Eventually(w.t, patience, func() error {
			w.send("a1", frame)
			time.Sleep(10 * time.Millisecond)
			if got("a2") < before["a2"]+10*500 { // the others have had enough time by then
				return fmt.Errorf("a2 does not receive packets that a1 sends to %s", group)
			}
			return nil
		})
		for _, name := range []string{"b1", "b2"} {
			if got(name) > before[name] {
				w.t.Errorf("%s, in another network, receives packets that a1 sends to %s", name, group)
			}
		}
	}
}

// otherClass lets a1 try to select another network's traffic class by socket priority.
func otherClass(w *world) {
	w.apply(vdn.Slice{MaxRate: uplink / 2}, vdn.Slice{MaxRate: uplink / 2})
	before := w.counter("n1", domain.Visitors, "").SentBytes
	long := append(wire.Announce(w.addr("a1", 0), w.podMAC("a1"))[0], make([]byte, 1400)...)
	const frames = 50
	sniffer := w.packets(w.Host("gateway"), domain.Uplink)
	for range frames {
		for _, class := range []int{0xfa1e0003, 0xfa1e0000} {
			w.sendFrame(w.Host("a1"), w.Pods["a1"].Att.Interface, class, long)
		}
	}
	testkit.Eventually(w.t, patience, func() error {
		if !sniffer.received(long) {
			return fmt.Errorf("the gateway does not receive a1's announcement of its own address")
		}
		return nil
	})
	if n := w.counter("n1", domain.Visitors, "").SentBytes - before; n >= frames/2*1400 {
		w.t.Errorf("%d bytes sent by a1 are counted for visitors", n)
	}
}
