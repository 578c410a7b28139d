package networks

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise/l2/wire"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// Behind the gateway are routers, and a link with a smaller MTU than a pod's. A host next
// to the nodes, named unenforced, has no enforcement.
//
//	gateway ── router ──(MTU 1300)── edge ── far      segment ── unenforced
const narrow = 1300

const beyond = "eth3" // the gateway's device

var (
	farAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8:b::9")}
	farNets  = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:b::/64")}
	routers  = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:a::/64")}
)

func farther() lab.Topology {
	end := func(host, dev string, addrs ...string) lab.End {
		e := lab.At(host, dev, addrs...)
		e.TxChecksumOff = true // a userspace switch does not compute checksums
		return e
	}
	return lab.Topology{
		Hosts: []lab.HostSpec{{Name: "router", Forward: true}, {Name: "edge", Forward: true}, {Name: "far"}, {Name: "unenforced"}},
		Links: []lab.Link{
			{A: end("gateway", beyond, "198.51.100.1/24", "2001:db8:a::1/64").
				Via("198.51.100.2", "192.0.2.0/24").Via("2001:db8:a::2", "2001:db8:b::/64"),
				B: end("router", "eth0", "198.51.100.2/24", "2001:db8:a::2/64").
					Via("198.51.100.1", "10.0.0.0/8").Via("2001:db8:a::1", "fd00::/8")},
			{A: end("router", "eth1", "198.51.101.1/24", "2001:db8:c::1/64").
				Via("198.51.101.2", "192.0.2.0/24").Via("2001:db8:c::2", "2001:db8:b::/64"),
				B: end("edge", "eth0", "198.51.101.2/24", "2001:db8:c::2/64").
					Via("198.51.101.1", "default").Via("2001:db8:c::1", "default"), MTU: narrow},
			{A: end("edge", "eth1", "192.0.2.1/24", "2001:db8:b::1/64"),
				B: end("far", "eth0", "192.0.2.9/24", "2001:db8:b::9/64").Via("192.0.2.1", "default").Via("2001:db8:b::1", "default")},
			{A: end("unenforced", "eth0"), B: lab.Port("segment")},
		},
	}
}

// pathMTU sends packets that are larger than a link on the path allows. A router that is
// in no network, and not explicitly allowed, reports this to the sender.
func pathMTU(w *world) {
	for _, far := range farAddrs {
		w.apply(vdn.Slice{AllowedCIDRs: farNets}, nothing)
		w.sendsFar(far)
	}
}

func (w *world) sendsFar(far netip.Addr) {
	const sent = 256 << 10
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	c, err := w.Host("a1").Dial(ctx, netip.Addr{}, netip.AddrPortFrom(far, port))
	if err != nil {
		w.t.Fatal(err)
	}
	before, _ := w.sinks["far"].Received()
	drops := w.drops(enforce.Outside)
	var writing sync.WaitGroup
	writing.Go(func() { _, _ = c.Write(make([]byte, sent)) }) // the check on the receiver is enough
	defer func() {
		c.Close()
		writing.Wait()
	}()
	if !w.means.Errors {
		testkit.Eventually(w.t, patience, func() error {
			if w.drops(enforce.Outside) == drops {
				return fmt.Errorf("to %s: no ICMP error from the router is counted as outside", far)
			}
			return nil
		})
		if n, _ := w.sinks["far"].Received(); n >= before+sent {
			w.t.Errorf("to %s: all bytes arrived, although the router's ICMP errors are dropped", far)
		}
		w.apply(vdn.Slice{AllowedCIDRs: slices.Concat(routers, farNets)}, nothing) // as the page says
	}
	testkit.Eventually(w.t, patience, func() error {
		if n, _ := w.sinks["far"].Received(); n < before+sent {
			return fmt.Errorf("%d bytes sent to %s, %d received: the packets exceed the path MTU", sent, far, n-before)
		}
		return nil
	})
}

// quote describes an ICMP error about a packet.
type quote struct {
	name string
	// kind contains type and code of the error by family: IPv4, IPv6.
	kind [2][2]byte
	// from is the sender of the quoted packet, to its destination, and router the sender
	// of the error. If they are not valid, they default to a1, an allowed destination,
	// and an unknown router.
	from, to, router netip.Addr
	proto            string // tcp if empty
	// about modifies the quoted packet, and around the packet that quotes it, from the IP
	// header on.
	about, around edit
	// passes is set if a1 may have sent the quoted packet. strays is set if the error
	// reaches a1 although it is addressed to another host.
	passes, strays bool
}

type edit func(packet []byte, v6 bool) []byte

// byFamily returns an edit that modifies a packet in place.
func byFamily(v4, v6 func(b []byte)) edit {
	return func(b []byte, is6 bool) []byte {
		if is6 {
			v6(b)
		} else {
			v4(b)
		}
		return b
	}
}

func not(_ []byte) {}

var (
	tooBig         = [2][2]byte{{3, 4}, {2, 0}}
	unreachable    = [2][2]byte{{3, 1}, {1, 3}}
	timeExceeded   = [2][2]byte{{11, 0}, {3, 0}}
	knownPlaces    = domain.OutsideAddrs
	otherPlaces    = []netip.Addr{netip.MustParseAddr("198.18.0.9"), netip.MustParseAddr("2001:db8:99::9")}
	defaultRouters = []netip.Addr{netip.MustParseAddr("198.18.7.7"), netip.MustParseAddr("2001:db8:77::7")}
)

// quotes returns the errors that must pass, and those that must not.
func (w *world) quotes(family int) []quote {
	other := w.addr("a2", family)
	return []quote{
		{name: "too big", kind: tooBig, passes: true},
		{name: "unreachable", kind: unreachable, passes: true},
		{name: "time exceeded", kind: timeExceeded, passes: true},
		{name: "about UDP", kind: unreachable, proto: "udp", passes: true},
		{name: "about an echo", kind: tooBig, proto: "icmp", passes: true},
		{name: "about a first fragment", kind: tooBig, about: byFamily(func(b []byte) { b[6] |= 0x20 }, not), passes: true},
		{name: "about a packet of another pod", kind: tooBig, from: other},
		{name: "about a packet of another pod, sent to that pod", kind: tooBig, from: other, strays: true},
		{name: "about a packet to an address that is not allowed", kind: tooBig, to: otherPlaces[family]},
		{name: "about a packet to another network", kind: tooBig, to: w.addr("b1", family)},
		{name: "from another network", kind: tooBig, router: w.addr("b2", family)},
		{name: "a redirect", kind: [2][2]byte{{5, 1}, {137, 0}}},
		{name: "a request", kind: [2][2]byte{{8, 0}, {128, 0}}},
		{name: "truncated transport header", kind: tooBig, about: func(b []byte, v6 bool) []byte { return b[:headerOf(v6)+7] }},
		{name: "truncated IP header", kind: tooBig, about: func(b []byte, v6 bool) []byte { return b[:headerOf(v6)-4] }},
		{name: "without a quoted packet", kind: tooBig, about: func(b []byte, v6 bool) []byte { return nil }},
		{name: "longer in the frame than in the packet", kind: tooBig, around: byFamily(
			func(b []byte) { binary.BigEndian.PutUint16(b[2:], 20+8+20+7); sumHeader(b) },
			func(b []byte) { binary.BigEndian.PutUint16(b[4:], 8+40+7) })},
		{name: "about options", kind: tooBig, about: byFamily(func(b []byte) { b[0] = 0x46 }, func(b []byte) { b[6] = unix.IPPROTO_HOPOPTS })},
		{name: "about a short header, or a routing header", kind: tooBig, about: byFamily(func(b []byte) { b[0] = 0x44 }, func(b []byte) { b[6] = unix.IPPROTO_ROUTING })},
		{name: "about a later fragment", kind: tooBig, about: byFamily(func(b []byte) { b[7] = 1 }, func(b []byte) { b[6] = unix.IPPROTO_FRAGMENT })},
		{name: "about an error", kind: timeExceeded, proto: "icmp", about: byFamily(func(b []byte) { b[20] = 3 }, func(b []byte) { b[40] = 2 })},
		{name: "about a redirect, or a neighbor", kind: timeExceeded, proto: "icmp", about: byFamily(func(b []byte) { b[20] = 5 }, func(b []byte) { b[40] = 135 })},
		{name: "about the other family", kind: tooBig, about: byFamily(func(b []byte) { b[0] = 0x65 }, func(b []byte) { b[0] = 0x45 })},
		{name: "in a fragment, or behind a header", kind: tooBig, around: byFamily(func(b []byte) { b[6] |= 0x20; sumHeader(b) }, func(b []byte) { b[6] = unix.IPPROTO_DSTOPTS })},
	}
}

// packet returns the error, and a mark by which it is recognized.
func (q quote) packet(w *world, number, family int) (packet, mark []byte) {
	v6 := family == 1
	or := func(a, b netip.Addr) netip.Addr {
		if a.IsValid() {
			return a
		}
		return b
	}
	inner := w.frame(wire.MAC{}, wire.MAC{}, pktgen.Packet{
		From: netip.AddrPortFrom(or(q.from, w.addr("a1", family)), uint16(0xfa00+number)), To: netip.AddrPortFrom(or(q.to, knownPlaces[family]), 0x1e77),
		Protocol: cmp.Or(q.proto, "tcp"), Payload: 64,
	})[14:]
	mark = slices.Clone(inner[headerOf(v6):][:4])
	if q.proto == "icmp" {
		mark = slices.Clone(inner[headerOf(v6)+4:][:4])
	}
	if q.about != nil {
		inner = q.about(inner, v6)
	}
	to := w.addr("a1", family)
	if q.strays {
		to = q.from
	}
	packet = icmp(or(q.router, defaultRouters[family]), to, q.kind[family][0], q.kind[family][1], 64, slices.Concat([]byte{0, 0, 5, 0x14}, inner))
	if q.around != nil {
		packet = q.around(packet, v6)
	}
	return packet, mark
}

// errorsOfRouters sends the errors on the segment, past all gateways, and through a
// gateway with enforcement.
func errorsOfRouters(w *world) {
	var open vdn.Slice
	for _, a := range knownPlaces {
		open.AllowedCIDRs = append(open.AllowedCIDRs, netip.PrefixFrom(a, a.BitLen()))
	}
	w.apply(open, nothing)
	for family := range 2 {
		w.injectErrors(w.Host("unenforced"), "eth0", w.podMAC("a1"), family)
		if w.rig.Gateways {
			w.injectErrors(w.Host("outside"), "eth0", w.macOf(w.Host("gateway"), domain.Wide), family)
		}
	}
}

// injectErrors lets a host send all errors, and checks which of them reach a1.
func (w *world) injectErrors(who *lab.Host, device string, to wire.MAC, family int) {
	w.t.Helper()
	protocol := []int{unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}[family]
	pod := newSniffer(w.t, w.Host("a1"), []int{unix.AF_INET, unix.AF_INET6}[family], protocol)
	from := w.macOf(who, device)
	inject := func(packet []byte) { w.sendFrame(who, device, 0, ethernet(to, from, packet)) }
	dropped := func() uint64 { return w.drops(enforce.Outside) + w.drops(enforce.Isolated) }
	before, rejected := dropped(), uint64(0)
	marks := map[string][]byte{}
	all := w.quotes(family)
	for i, q := range all {
		if q.strays && who.Name() != "unenforced" || q.passes && w.means.Errors {
			continue // a gateway forwards these to the host that owns the address
		}
		packet, mark := q.packet(w, i, family)
		inject(packet)
		rejected++
		marks[q.name] = mark
	}
	testkit.Eventually(w.t, patience, func() error {
		if n := dropped() - before; n < rejected {
			return fmt.Errorf("%d ICMP errors from %s are not for packets of a1, %d were dropped", rejected, who.Name(), n)
		}
		return nil
	})
	for i, q := range all {
		if !q.passes || !w.means.Errors {
			continue
		}
		packet, mark := q.packet(w, i, family)
		testkit.Eventually(w.t, patience, func() error {
			inject(packet)
			time.Sleep(time.Millisecond)
			if !pod.received(mark) {
				return fmt.Errorf("ICMP error from %s does not reach a1: IPv%d, %s", who.Name(), 4+2*family, q.name)
			}
			return nil
		})
	}
	for name, mark := range marks {
		if pod.received(mark) {
			w.t.Errorf("ICMP error from %s reaches a1: IPv%d, %s", who.Name(), 4+2*family, name)
		}
	}
}
