package xdp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// A p2c frontend whose backends all drain has no slots: a new flow must not get a backend
// of another frontend, whose slots are where its own would be.
func TestPowerOfTwoAllDraining(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, "10.1.1.7:80", service.TCP, "172.16.7.7:80"))
	f := frontend(service.Tunnel, vips[false], service.TCP, servers[false])
	f.Scheduler, f.Backends[0].Weight = service.PowerOfTwo, 0
	upsert(t, d, f)
	v, out := n.run(t, d, packet{src: clients[false], dst: vips[false], flags: "S"}.bytes(t))
	if drops := d.Describe().Drops; v != drop || drops["no-backend"] != 1 {
		t.Errorf("%v, drops %v: %x", v, drops, out)
	}
}

// A fragmented outer packet is for the kernel to reassemble: its first fragment is not
// taken for the whole.
func TestHandedOverInFragments(t *testing.T) {
	p := newPair(t, service.FullNAT, false, 1500)
	_, handed := p.stays.run(t, p.b, p.known.bytes(t))
	frame := delivered(handed)
	for name, field := range map[string]uint16{"first": 0x2000, "later": 185} {
		binary.BigEndian.PutUint16(frame[14+6:], field)
		header := header4(frame[14:])
		binary.BigEndian.PutUint16(header[10:], 0)
		binary.BigEndian.PutUint16(header[10:], sum16(header))
		rawRow{name: name, in: frame, verdict: pass}.check(t, p.leaves, p.d)
	}
}

// A router's ICMP error about a packet to a nat backend is for the client, even after
// extension headers.
func TestErrorByNATBehindExtension(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.NAT)
	in := packet{src: clients[true], dst: vips[true], flags: "S"}
	got := in
	got.dst = servers[true]
	row{name: "opens", in: in, verdict: redirect, out: func(p *packet) { *p = outside(got) }}.check(t, n, d)
	kind := errorKinds[true][0]
	m := icmp{packet: packet{src: routers[true], dst: addrOf(clients[true])}, kind: kind[0], code: kind[1], body: got.bytes(t)[14:]}
	sent := withExtension(m.bytes(t), 60, 0, 0, 1, 4, 0, 0, 0, 0)
	m.packet, m.body = outside(m.packet), in.bytes(t)[14:]
	rawRow{name: "error", in: sent, verdict: redirect, out: withExtension(m.bytes(t), 60, 0, 0, 1, 4, 0, 0, 0, 0)}.check(t, n, d)
}

// IPv6 packets with IPv4-mapped addresses, ::ffff:a.b.c.d, do not match IPv4: neither its
// VIPs nor source ranges.
func TestMappedAddressesAreNobodys(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, v6 := range []bool{false, true} {
		f := frontend(service.Tunnel, vips[v6], service.TCP, servers[v6])
		f.Allow = prefixes("192.168.0.0/16")
		upsert(t, d, f)
	}
	mapped := packet{src: clients[true], dst: vips[true], flags: "S"}.bytes(t)
	as4 := func(at int, a string) []byte {
		frame := bytes.Clone(mapped)
		b := netip.MustParseAddr(a).As16()
		copy(frame[14+at:], b[:])
		return frame
	}
	for name, frame := range map[string][]byte{"source": as4(8, "192.168.0.1"), "destination": as4(24, addrOf(vips[false]))} {
		rawRow{name: name, in: frame, verdict: pass}.check(t, n, d)
		rawRow{name: name + ", tagged", in: tagged(frame, 4), verdict: pass}.check(t, n, d)
	}
}

// A backend's reply with an expired TTL is dropped, and does not affect its flow.
func TestSpentAnswerLeavesItsFlow(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.FullNAT)
	in := packet{src: clients[false], dst: vips[false], flags: "S"}
	row{name: "opens", in: in, verdict: redirect, out: func(p *packet) {
		*p = outside(packet{src: netip.AddrPortFrom(own4, portOf(t, d, in)).String(), dst: servers[false], flags: "S"})
	}}.check(t, n, d)
	answer := packet{src: servers[false], dst: netip.AddrPortFrom(own4, portOf(t, d, in)).String(), flags: "R", ttl: 1}.bytes(t)
	for name, frame := range map[string][]byte{"plain": answer, "tagged": tagged(answer, 4)} {
		rawRow{name: name, in: frame, verdict: drop, drop: "ttl-expired"}.check(t, n, d)
		if all, err := allFlows(d); err != nil || len(all) != 1 || all[0].State != "opening" {
			t.Errorf("%s: flows %v, %v", name, all, err)
		}
	}
}

// A client's affinity entry does not take its own flow's entry: if all other flows of a
// set must stay, that flow would never be tracked.
func TestAffinitySparesItsOwnFlow(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFlows = 8 // one set
	d := n.open(t, c)
	f := frontend(service.NAT, vips[false], service.TCP, servers[false])
	upsert(t, d, f)
	for port := uint16(1); port < 8; port++ {
		in := packet{src: netip.AddrPortFrom(netip.MustParseAddr("192.168.0.77"), port).String(), dst: vips[false], flags: "S"}
		n.run(t, d, in.bytes(t))
		answer := packet{src: servers[false], dst: in.src, flags: "SA"}
		n.run(t, d, answer.bytes(t))
		in.flags = "A"
		n.run(t, d, in.bytes(t))
	}
	f.Affinity = time.Minute
	upsert(t, d, f)
	in := packet{src: clients[false], dst: vips[false], flags: "S"}
	for range 2 {
		if v, _ := n.run(t, d, in.bytes(t)); v != redirect {
			t.Errorf("verdict %v, drops %v", v, d.Describe().Drops)
		}
		all, err := allFlows(d)
		if err != nil || len(all) != 8 {
			t.Errorf("%d flows are remembered, not 8 (%v): %v", len(all), err, all)
		}
	}
}

// A fullnat flow whose frontend switches to direct server return keeps its return entry:
// replies in flight arrive, and replies after switching back too.
func TestMethodChangeKeepsTheWayBack(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.FullNAT, "10.1.1.7:80", service.TCP, servers[false]))
	f := frontend(service.FullNAT, vips[false], service.UDP, servers[false])
	f.Survival = service.FlowTable
	upsert(t, d, f)
	in := packet{src: clients[false], dst: vips[false], udp: true}
	n.run(t, d, in.bytes(t))
	port := portOf(t, d, in)
	f.Method = service.Tunnel
	upsert(t, d, f)
	if v, _ := n.run(t, d, in.bytes(t)); v != redirect {
		t.Errorf("by tunnel: %v, drops %v", v, d.Describe().Drops)
	}
	answer := packet{src: servers[false], dst: netip.AddrPortFrom(own4, port).String(), udp: true}
	row{name: "answer", in: answer, verdict: redirect, out: func(p *packet) {
		*p = outside(packet{src: vips[false], dst: clients[false], udp: true})
	}}.check(t, n, d)
}

// A lingering flow that the agent has not seen yet does not count as a connection of its
// backend once another flow gets its port.
func TestLingeringFlowIsCountedOff(t *testing.T) {
	con := resetByClient(t)
	n, d := con.net, con.d
	expire(t, d, con.client, con.vip, service.TCP)
	other := packet{src: "192.168.77.3:1", dst: vips[false], flags: "S"}
	row{name: "it lingers", in: other, verdict: redirect, out: forth(owns[false], 20000, servers[false])}.check(t, n, d)
	_, w := flowEntry(t, d, other.src, vips[false], service.TCP)
	var connections uint64
	must(t, d.kernel.Connections.Lookup(uint32(w)&(1<<20-1), &connections))
	if connections != 1<<32 {
		t.Errorf("the server has the connections %#x, not the new one alone", connections)
	}
}

// A table full of opening flows rejects no new flow with nat: the line of return entries
// for its reply may be full of theirs, and one of them is evicted.
func TestFloodTakesNoPlacesOfAnswers(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFlows = 1 << 10
	d := n.open(t, c)
	upsert(t, d, frontend(service.NAT, vips[false], service.TCP, servers[false]))
	const clients = 20_000
	for i := range clients {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), 4242)
		n.run(t, d, packet{src: client.String(), dst: vips[false], flags: "S"}.bytes(t))
	}
	if refused := dropsOf(d, "no-port"); refused > 0 {
		t.Errorf("%d of %d clients were refused: %v", refused, clients, d.Describe().Drops)
	}
	last := packet{src: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte((clients - 1) >> 8), byte((clients - 1) & 0xff)}), 4242).String(), dst: vips[false], flags: "S"}
	answer := packet{src: servers[false], dst: last.src, flags: "SA"}
	row{name: "the last one's answer", in: answer, verdict: redirect, out: func(p *packet) { p.src = vips[false]; sent(p) }}.check(t, n, d)
}
