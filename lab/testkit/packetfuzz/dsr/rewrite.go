package dsr

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// to returns a packet's ends with another destination.
func to(p *wire.Packet, dst wire.Addr, port uint16) wire.Tuple {
	t := p.Tuple
	t.Dst, t.DPort = dst, port
	return t
}

// keepsPort reports whether a packet cannot get another port: SCTP's checksum covers the
// whole packet. No agent has an SCTP backend on another port than the VIP's, but the list
// of a packet may contain another port than its own.
func keepsPort(p *wire.Packet, from, to uint16) bool { return p.Proto == wire.SCTP && from != to }

// readdress gives the packet that was p other ends, at its current place: its header at
// l3, its transport at l4. ports means that it has a transport header.
func (m *model) readdress(p *wire.Packet, l3, l4 int, t wire.Tuple, ports bool) {
	e := &m.expected
	m.putAddresses(p, l3, l4, t.Src, t.Dst)
	if !ports {
		return
	}
	m.putTransport(e, p, l4, t)
}

// putAddresses writes the addresses, and records what the IPv4 header checksum covers.
func (m *model) putAddresses(p *wire.Packet, l3, l4 int, src, dst wire.Addr) {
	e := &m.expected
	ip := e.Frame[l3:]
	if p.V6 {
		src.Put(ip[8:], true)
		dst.Put(ip[24:], true)
		return
	}
	src.Put(ip[12:], false)
	dst.Put(ip[16:], false)
	e.KeepSum("IPv4", l3+10, wire.Sum(m.frame[p.L3:p.L4]), l3, l4, 0)
}

func sumOfAddrs(t *wire.Tuple) uint64 { return wire.Sum(t.Src[:]) + wire.Sum(t.Dst[:]) }

// putTransport writes the ports, and records what the transport checksum covers.
func (m *model) putTransport(e *packetfuzz.Expected, p *wire.Packet, l4 int, t wire.Tuple) {
	was, is := m.frame[p.L4:], e.Frame[l4:]
	binary.BigEndian.PutUint16(is, t.SPort)
	binary.BigEndian.PutUint16(is[2:], t.DPort)
	before, after := sumOfAddrs(&p.Tuple), sumOfAddrs(&t)
	switch p.Proto {
	case wire.TCP:
		bytes := int(was[12]>>4) * 4
		bytes = min(bytes, len(was))
		e.KeepSum("TCP", l4+16, before+wire.Sum(was[:bytes]), l4, l4+bytes, after)
	case wire.UDP:
		e.KeepUDP("UDP", l4+6, binary.BigEndian.Uint16(was[6:]), before+wire.Sum(was[:8]), l4, l4+8, after)
	}
}

// translate replaces one end of the packet that an ICMP error quotes, and gives the error
// these addresses. The error, which was p, has moved by shift after its IP header, which
// is now the frame's first.
func (m *model) translate(p *wire.Packet, q *wire.Quoted, shift int, src bool, end wire.Endpoint, outerSrc, outerDst wire.Addr) {
	e := &m.expected
	m.putAddresses(p, 14, p.L4+shift, outerSrc, outerDst)
	is := q.Tuple
	if src {
		is.Src, is.SPort = end.Addr, end.Port
	} else {
		is.Dst, is.DPort = end.Addr, end.Port
	}
	l3, l4 := q.L3+shift, q.L4+shift
	if p.V6 {
		is.Src.Put(e.Frame[l3+8:], true)
		is.Dst.Put(e.Frame[l3+24:], true)
	} else {
		is.Src.Put(e.Frame[l3+12:], false)
		is.Dst.Put(e.Frame[l3+16:], false)
		e.KeepSum("the quoted IPv4", l3+10, wire.Sum(m.frame[q.L3:q.L3+20]), l3, l3+20, 0)
	}
	m.quotedTransport(q, l4, &is)
	end4 := len(m.frame) - (len(m.frame)-p.L4)%2 // what an odd last byte adds is the same
	var before, after uint64
	if p.V6 {
		before, after = wire.Sum(p.Src[:])+wire.Sum(p.Dst[:]), wire.Sum(outerSrc[:])+wire.Sum(outerDst[:])
	}
	e.KeepSum("ICMP", p.L4+shift+2, before+wire.Sum(m.frame[p.L4:end4]), p.L4+shift, end4+shift, after)
}

// quotedTransport writes the ports of a quoted packet, and records what its checksum
// covers, if it is present.
func (m *model) quotedTransport(q *wire.Quoted, l4 int, t *wire.Tuple) {
	e := &m.expected
	was, is := m.frame[q.L4:], e.Frame[l4:]
	binary.BigEndian.PutUint16(is, t.SPort)
	binary.BigEndian.PutUint16(is[2:], t.DPort)
	before, after := sumOfAddrs(&q.Tuple), sumOfAddrs(t)
	switch {
	case q.Proto == wire.TCP && q.Room >= 18:
		e.KeepSum("the quoted TCP", l4+16, before+wire.Sum(was[:18]), l4, l4+18, after)
	case q.Proto == wire.UDP && q.Room >= 8:
		e.KeepUDP("the quoted UDP", l4+6, binary.BigEndian.Uint16(was[6:]), before+wire.Sum(was[:8]), l4, l4+8, after)
	}
}

// wayTo returns the route from an address to another for a frame of this length, and the
// answer of the kernel's tables (bpf_fib_lookup, for a socket buffer).
func (m *model) wayTo(src, dst *wire.Addr, bytes int) (wayOut, int32) {
	v6 := m.outer.V6
	if v6 && (src.StaysOnLink() || dst.StaysOnLink()) {
		return wayOut{}, packetfuzz.RouteNotForwarded
	}
	r := m.routes.To(m.hook.ifindex, v6, *dst)
	answer := r.Answer
	if answer == packetfuzz.RouteFound && bytes > m.config.mtus[r.Ifindex]+14+4 {
		return wayOut{}, packetfuzz.RouteTooBig
	}
	if answer == packetfuzz.RouteNoNeighbor {
		answer = packetfuzz.RouteFound
	}
	w := wayOut{ifindex: r.Ifindex}
	w.family, w.to = r.NextHop(v6)
	return w, answer
}

// sendToSecond sends a frame to the next backend, to which it is addressed.
func (m *model) sendToSecond(dst *wire.Addr, bytes int) int32 {
	way, answer := m.wayTo(&m.outer.Src, dst, bytes)
	switch answer {
	case packetfuzz.RouteForwardingOff:
		way = wayOut{ifindex: m.hook.ifindex}
	case packetfuzz.RouteFound:
	default:
		return m.drop("NO_WAY_TO_SECOND")
	}
	m.count("SECOND_CHANCE")
	m.way = way
	return packetfuzz.ActRedirect
}
