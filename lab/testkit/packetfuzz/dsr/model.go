package dsr

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// hook is a program at a device.
type hook struct {
	name    string
	program string
	place   byte // the kind of backends that it handles
	ifindex uint32
}

// Places of backends, as in rows.
const (
	pod  byte = 1
	host byte = 2
)

// Forwarding modes, as in rows.
const (
	tunnel    byte = 1
	directNAT byte = 2
	dr        byte = 3
)

// model is what the programs on the backend node must do.
type model struct {
	config *config
	routes *packetfuzz.Routes
	saw    *packetfuzz.Features

	ns       uint64
	frame    []byte
	hook     *hook
	outer    wire.Packet
	expected packetfuzz.Expected
	changed  bool
	way      wayOut
	source   wire.Addr // the source of an answer,
	stuck    bool      // and whether it cannot be set
	counters map[string]uint64

	table     table
	fragments map[fragmentKey]*fragment
}

// wayOut is how a program must have redirected the frame.
type wayOut struct {
	ifindex uint32
	family  uint32
	to      wire.Addr // in the family's form, zero padded
}

func (m *model) count(what string) { m.counters[what]++ }

// pass leaves the frame to the kernel, and counts the reason.
func (m *model) pass(why string) int32 {
	m.count(why)
	return packetfuzz.ActUnspec
}

func (m *model) drop(why string) int32 {
	m.count("DROPPED_" + why)
	return packetfuzz.ActShot
}

const untouched = int32(packetfuzz.ActUnspec)

// packet returns the verdict on a frame.
func (m *model) packet(frame []byte, h *hook) int32 {
	m.frame, m.hook, m.changed, m.way = frame, h, false, wayOut{}
	kind := binary.BigEndian.Uint16(frame[12:])
	if kind != 0x0800 && kind != 0x86dd {
		return untouched
	}
	m.outer = wire.ReadSKB(frame, 14, kind == 0x86dd)
	switch h.program {
	case "to_host":
		if frame[0]&1 == 0 && !h.isOwn(frame) { // for another host on this wire
			return untouched
		}
		return m.toward()
	case "to_server":
		return m.toward()
	case "from_node":
		if m.outer.Kind == wire.Error {
			return m.errorBack(host)
		}
		return untouched
	}
	return m.back()
}

func (h *hook) isOwn(frame []byte) bool { return [6]byte(frame[:6]) == macs[h.name] }

// inner is the packet inside a tunnel.
type inner struct {
	wire.Packet
	list   []wire.Endpoint
	listAt int
	tagged bool
	gue    bool
	sum    bool
}

// toward handles a packet toward a backend.
func (m *model) toward() int32 {
	v := &m.outer
	t := &inner{}
	switch v.Kind {
	case wire.Malformed:
		return m.pass("PASSED_MALFORMED")
	case wire.Foreign:
		return untouched
	case wire.Error:
		return m.directError()
	case wire.Later:
		if v.Proto == wire.IPIP || v.Proto == wire.IPv6 {
			return m.pass("PASSED_OUTER_FRAGMENT")
		}
		return m.directLater()
	case wire.Transport:
		l3, v6, ok := 0, false, false
		if v.Proto == wire.UDP && v.DPort == guePort && !v.Fragment && v.Plain {
			l3, v6, ok = m.readGUE(t)
		}
		if !ok {
			return m.direct()
		}
		t.Packet = wire.ReadSKB(m.frame, l3, v6)
	default:
		if v.Fragment {
			return m.pass("PASSED_OUTER_FRAGMENT")
		}
		t.list, t.listAt = readList(m.frame, listAt(v), v.List, v.V6), listAt(v)
		t.Packet = wire.ReadSKB(m.frame, v.L4, v.Kind == wire.Tunnel6)
	}
	return m.tunnelEnd(t)
}

const guePort = 6080

// readGUE reads the GUE header: where the inner packet begins.
func (m *model) readGUE(t *inner) (l3 int, v6, ok bool) {
	v, b := &m.outer, m.frame
	at := v.L4 + 8
	if at+4 > len(b) || b[at]>>5 != 0 || b[at+2] != 0 || b[at+3] != 0 || b[at+1] != wire.IPIP && b[at+1] != wire.IPv6 {
		return 0, false, false
	}
	words := int(b[at] & 31)
	t.gue, t.sum = true, b[v.L4+6]|b[v.L4+7] != 0
	l3 = at + 4 + 4*words
	if words == 0 {
		return l3, b[at+1] == wire.IPv6, true
	}
	if at+8 > len(b) || b[at+4] != 0x9e || b[at+6] != 0 && b[at+6] != wire.TagBytes/4 || b[at+7] != 0 {
		return 0, false, false
	}
	n := int(b[at+5])
	t.tagged = b[at+6] != 0
	if n == 0 && !t.tagged || n > 6 || wire.GUEListBytes(n, t.tagged, v.V6) != 4*words {
		return 0, false, false
	}
	if t.listAt = at + 8; l3 <= len(b) { // otherwise the inner packet is malformed
		t.list = readList(b, t.listAt, n, v.V6)
	}
	return l3, b[at+1] == wire.IPv6, true
}

func listSize(v6 bool) int {
	if v6 {
		return 18
	}
	return 6
}

// listAt is the offset of the first endpoint of the list in an IP header.
func listAt(v *wire.Packet) int {
	if v.V6 {
		return v.L3 + 44
	}
	return v.L3 + 22
}

func readList(b []byte, at, n int, v6 bool) (list []wire.Endpoint) {
	for range n {
		e := wire.Endpoint{Port: binary.BigEndian.Uint16(b[at+listSize(v6)-2:])}
		if v6 {
			e.Addr = wire.From6(b[at:])
		} else {
			e.Addr = wire.From4(b[at:])
		}
		list = append(list, e)
		at += listSize(v6)
	}
	return list
}

// tunnelEnd handles a tunneled packet.
func (m *model) tunnelEnd(t *inner) int32 {
	switch t.Kind {
	case wire.Malformed:
		return m.pass("PASSED_MALFORMED")
	case wire.Transport:
		if t.List > 0 {
			return untouched
		}
		return m.tunnelled(t)
	case wire.Later:
		return m.tunnelledLater(t)
	case wire.Error:
		return m.tunnelledError(t)
	}
	return untouched
}

// tunnelled handles a packet with ports.
func (m *model) tunnelled(t *inner) int32 {
	r := m.config.find(&key{vip: t.Dst, server: m.outer.Dst, vipPort: t.DPort, proto: t.Proto})
	if r == nil || r.method != tunnel || r.deliver.Is4() == t.V6 {
		return m.pass("PASSED_FOREIGN_TUNNEL")
	}
	if r.place != m.hook.place {
		return untouched
	}
	if !m.isSender(&m.outer.Src) {
		return m.drop("UNKNOWN_BALANCER")
	}
	vip := wire.Endpoint{Addr: t.Dst, Port: t.DPort}
	flow := r.flow(&t.Tuple)
	next, at := m.next(t.list, 0, wire.Endpoint{Addr: m.outer.Dst}, vip, r, t.Proto, true)
	header := 20
	if m.outer.V6 {
		header = 40
	}
	overhead := header + wire.ListBytes(5, m.outer.V6)
	if t.gue {
		overhead = header + 12 + wire.GUEListBytes(5, false, m.outer.V6)
	}
	switch m.decide(flow, &t.Packet, next != nil, vip, r, overhead) {
	case sendOn:
		if t.Fragment {
			m.rememberFragment(&t.Packet, sentOn, wire.Addr{})
		}
		return m.tunnelOn(t, *next, at)
	case collision:
		return m.drop("COLLISION")
	case tableFull:
		return m.drop("FLOWS_FULL")
	case denied:
		return m.drop("SOURCE_DENIED")
	}
	if keepsPort(&t.Packet, t.DPort, flow.DPort) {
		return m.drop("REWRITE")
	}
	m.unwrap(t)
	m.readdress(&t.Packet, 14, t.L4+m.shiftOf(t), to(&t.Packet, flow.Dst, flow.DPort), true)
	return m.delivered("TUNNEL_DELIVERED", t)
}

// isSender reports whether tunneled packets from an address are accepted.
func (m *model) isSender(a *wire.Addr) bool { return m.config.senders == nil || m.config.senders[*a] }

// shiftOf is by how much the inner packet moves when the tunnel header is removed.
func (m *model) shiftOf(t *inner) int { return m.outer.L3 - t.L3 }

// unwrap removes the tunnel header.
func (m *model) unwrap(t *inner) {
	e := m.change()
	e.Frame = append(e.Frame[:0], m.frame[:14]...)
	if t.V6 {
		e.Frame[12], e.Frame[13] = 0x86, 0xdd
	} else {
		e.Frame[12], e.Frame[13] = 0x08, 0x00
	}
	e.Frame = append(e.Frame, m.frame[t.L3:]...)
}

// delivered ends with a decapsulated packet: the outer header's congestion mark is copied
// to it (RFC 6040).
func (m *model) delivered(what string, t *inner) int32 {
	m.count(what)
	if m.outer.TOS&3 != 3 || t.TOS&3 == 0 {
		return untouched
	}
	ip := m.expected.Frame[14:]
	if t.V6 {
		ip[1] |= 0x30
	} else {
		ip[1] |= 3
	}
	return untouched
}

func (m *model) tunnelledLater(t *inner) int32 {
	r := m.config.findBare(&t.Dst, &m.outer.Dst, t.Proto)
	if r == nil || r.deliver.Is4() == t.V6 {
		return m.pass("PASSED_FRAGMENT")
	}
	if r.place != m.hook.place {
		return untouched
	}
	if !m.isSender(&m.outer.Src) {
		return m.drop("UNKNOWN_BALANCER")
	}
	if m.had(&t.Packet, sentOn) {
		vip := wire.Endpoint{Addr: t.Dst}
		if next, at := m.next(t.list, 0, wire.Endpoint{Addr: m.outer.Dst}, vip, r, t.Proto, false); next != nil {
			return m.tunnelOn(t, *next, at)
		}
	}
	m.unwrap(t)
	m.readdress(&t.Packet, 14, t.L4+m.shiftOf(t), to(&t.Packet, r.deliver, 0), false)
	return m.delivered("FRAGMENT_DELIVERED", t)
}

func (m *model) tunnelledError(t *inner) int32 {
	q, ok := t.ReadQuoted(m.frame)
	if !ok || q.Src != t.Dst {
		return m.pass("PASSED_FOREIGN_ERROR")
	}
	r := m.config.find(&key{vip: t.Dst, server: m.outer.Dst, vipPort: q.SPort, proto: q.Proto})
	if r == nil || r.method != tunnel || r.deliver.Is4() == t.V6 {
		return m.pass("PASSED_FOREIGN_ERROR")
	}
	if r.place != m.hook.place {
		return untouched
	}
	if !m.isSender(&m.outer.Src) {
		return m.drop("UNKNOWN_BALANCER")
	}
	flow := r.flowOfError(&q)
	if m.table.find(flow) == nil {
		vip := wire.Endpoint{Addr: t.Dst, Port: q.SPort}
		if next, at := m.next(t.list, 0, wire.Endpoint{Addr: m.outer.Dst}, vip, r, q.Proto, true); next != nil {
			return m.tunnelOn(t, *next, at)
		}
	}
	m.unwrap(t)
	m.translate(&t.Packet, &q, m.shiftOf(t), true, wire.Endpoint{Addr: flow.Dst, Port: flow.DPort}, t.Src, flow.Dst)
	return m.delivered("ERROR_DELIVERED", t)
}

// change starts the expected output.
func (m *model) change() *packetfuzz.Expected {
	m.expected.Begin(m.frame)
	m.changed = true
	return &m.expected
}

// tunnelOn sends a packet in its tunnel to the next backend, with the rest of the list.
func (m *model) tunnelOn(t *inner, next wire.Endpoint, at int) int32 {
	v := &m.outer
	if m.hook.place == host && v.TTL <= 1 {
		return m.pass("PASSED_TTL")
	}
	rest := t.list[at+1:]
	e := m.change()
	if t.gue {
		m.shortenGUE(e, t, rest)
	} else {
		m.shorten(e, v, rest)
	}
	ip := e.Frame[14:]
	if v.V6 {
		next.Addr.Put(ip[24:], true)
	} else {
		next.Addr.Put(ip[16:], false)
	}
	m.hop(e, v)
	m.keepHeader(e, v)
	return m.sendToSecond(&next.Addr, len(e.Frame))
}

// hop decrements the TTL of a packet from the network.
func (m *model) hop(e *packetfuzz.Expected, v *wire.Packet) {
	if m.hook.place != host {
		return
	}
	if v.V6 {
		e.Frame[14+7]--
	} else {
		e.Frame[14+8]--
	}
}

// keepHeader requires that the IPv4 header checksum is as correct as before.
func (m *model) keepHeader(e *packetfuzz.Expected, v *wire.Packet) {
	if !v.V6 {
		e.KeepSum("IPv4", 24, wire.Sum(m.frame[14:v.L4]), 14, 14+int(e.Frame[14]&15)*4, 0)
	}
}

// shorten reduces the list in the first IP header to rest.
func (m *model) shorten(e *packetfuzz.Expected, v *wire.Packet, rest []wire.Endpoint) {
	before, after := v.ListBytesIn(), wire.ListBytes(len(rest), v.V6)
	header := 20
	if v.V6 {
		header = 40
	}
	e.Frame = append(e.Frame[:0], m.frame[:14+header]...)
	if len(rest) > 0 && v.V6 {
		e.Frame = wire.Option6(e.Frame, rest, v.Next)
	} else if len(rest) > 0 {
		e.Frame = wire.Option4(e.Frame, rest)
	}
	e.Frame = append(e.Frame, m.frame[14+header+before:]...)
	ip := e.Frame[14:]
	gone := uint16(before - after)
	if !v.V6 {
		ip[0] -= byte(gone / 4)
		binary.BigEndian.PutUint16(ip[2:], binary.BigEndian.Uint16(ip[2:])-gone)
		return
	}
	if len(rest) == 0 && before > 0 {
		ip[6] = v.Next
	}
	if length := binary.BigEndian.Uint16(ip[4:]); length > 0 {
		binary.BigEndian.PutUint16(ip[4:], length-gone)
	}
}

// shortenGUE reduces the list in GUE to rest.
func (m *model) shortenGUE(e *packetfuzz.Expected, t *inner, rest []wire.Endpoint) {
	v := &m.outer
	left := wire.GUEListBytes(len(rest), false, v.V6)
	gone := wire.GUEListBytes(len(t.list), t.tagged, v.V6) - left
	at := v.L4 + 12
	e.Frame = append(e.Frame[:0], m.frame[:at]...)
	if len(rest) > 0 {
		e.Frame = wire.List(append(e.Frame, 0x9e, byte(len(rest)), 0, 0), rest, v.V6)
		for (len(e.Frame)-at)%4 != 0 {
			e.Frame = append(e.Frame, 0)
		}
	}
	e.Frame = append(e.Frame, m.frame[t.L3:]...)
	udp := e.Frame[v.L4:]
	binary.BigEndian.PutUint16(udp[4:], binary.BigEndian.Uint16(udp[4:])-uint16(gone))
	udp[6], udp[7] = 0, 0 // a tunnel needs none (RFC 6935)
	udp[8] = byte(left / 4)
	length := e.Frame[14+2:]
	if v.V6 {
		length = e.Frame[14+4:]
	}
	binary.BigEndian.PutUint16(length, binary.BigEndian.Uint16(length)-uint16(gone))
}
