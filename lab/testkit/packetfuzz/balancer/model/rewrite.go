package model

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/segment"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// rewrite turns the packet into what its backend should get, with its own header: other
// ends, a list in place of stripped bytes of the client's options, and the addresses of a
// route. In an ICMP error, whose flow's ends these are, the quoted packet changes, and
// the error's destination and, with hide, its source.
func (m *Model) rewrite(s *sending, to wire.Tuple, list []wire.Endpoint, stripped int, w way, hide bool) {
	e := m.change()
	v := s.view
	shift := 0
	if len(list) > 0 || stripped > 0 {
		shift = m.reshape(e, s, list, stripped)
	}
	m.addresses(e.Frame, s, w)
	ip := e.Frame[v.L3:]
	hop := 8
	if v.V6 {
		hop = 7
	}
	if w.kind != byKernel {
		ip[hop]--
	}
	src := to.Src
	if s.isError && !hide {
		src = v.Src
	}
	m.putAddresses(ip, src, to.Dst, v.V6)
	if !v.V6 {
		header := v.L3 + int(ip[0]&15)*4
		e.KeepSum("IPv4", v.L3+10, wire.Sum(m.frame[v.L3:v.L4]), v.L3, header, 0)
	}
	switch {
	case s.isError && to != s.Tuple:
		m.requote(e, s, to, src, shift)
	case to != s.Tuple && v.Offset == 0:
		m.reportTransport(e, v.L4, v.End, shift, s.Tuple, to, s.change)
	}
}

func (m *Model) putAddresses(ip []byte, src, dst wire.Addr, v6 bool) {
	if v6 {
		src.Put(ip[8:], true)
		dst.Put(ip[24:], true)
	} else {
		src.Put(ip[12:], false)
		dst.Put(ip[16:], false)
	}
}

// reshape replaces the client's options with a list, and returns by how much the packet
// has grown.
func (m *Model) reshape(e *packetfuzz.Expected, s *sending, list []wire.Endpoint, stripped int) int {
	v := s.view
	header := headerBytes(v.V6)
	keep := keepFrom(v)
	e.Frame = append(e.Frame[:0], m.frame[:v.L3+header]...)
	proto := v.Proto
	if v.Fragment > 0 {
		proto = wire.Fragment
	}
	if len(list) > 0 && v.V6 {
		e.Frame = wire.Option6(e.Frame, list, proto)
		proto = wire.DstOpts
	} else if len(list) > 0 {
		e.Frame = wire.Option4(e.Frame, list)
	}
	grown := len(e.Frame) - v.L3 - header - stripped
	e.Frame = append(e.Frame, m.frame[keep:]...)
	ip := e.Frame[v.L3:]
	if v.V6 {
		ip[6] = proto
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(grown))
	} else {
		ip[0] = 0x40 | byte((header+stripped+grown)/4)
		binary.BigEndian.PutUint16(ip[2:], binary.BigEndian.Uint16(ip[2:])+uint16(grown))
	}
	return grown
}

// sumOfAddrs is what two addresses add to a checksum.
func sumOfAddrs(a, b *wire.Addr) uint64 { return wire.Sum(a[:]) + wire.Sum(b[:]) }

// reportTransport gives a transport header at l4 other ports, and records what its
// checksum covers.
func (m *Model) reportTransport(e *packetfuzz.Expected, l4, end, shift int, from, to wire.Tuple, change *segment.Shift) {
	was := m.frame[l4:]
	is := e.Frame[l4+shift:]
	binary.BigEndian.PutUint16(is, to.SPort)
	binary.BigEndian.PutUint16(is[2:], to.DPort)
	before, after := sumOfAddrs(&from.Src, &from.Dst), sumOfAddrs(&to.Src, &to.Dst)
	at := l4 + shift
	switch from.Proto {
	case wire.TCP:
		header := 18 // the checksum and what is before it
		if change != nil {
			header = segment.HeaderBytes(was)
			change.Apply(is)
		}
		if l4+header <= end {
			e.KeepSum("TCP", at+16, before+wire.Sum(was[:header]), at, at+header, after)
		}
	case wire.UDP:
		if l4+8 <= end {
			e.KeepUDP("UDP", at+6, binary.BigEndian.Uint16(was[6:]), before+wire.Sum(was[:8]), at, at+8, after)
		}
	case wire.SCTP:
		if from.SPort != to.SPort || from.DPort != to.DPort {
			e.KeepSCTP(at, wire.SCTPError(m.frame[l4:end]), end+shift)
		}
	}
}

// requote turns a quoted packet into the one sent on the other side: its direction is the
// reverse of the flow's ends.
func (m *Model) requote(e *packetfuzz.Expected, s *sending, to wire.Tuple, src wire.Addr, shift int) {
	v, q := s.view, &s.quoted
	turned, was := to.Turned(), s.Tuple.Turned()
	m.putAddresses(e.Frame[q.L3+shift:], turned.Src, turned.Dst, q.V6)
	if !q.V6 {
		e.KeepSum("the quoted IPv4", q.L3+shift+10, wire.Sum(m.frame[q.L3:q.L3+20]), q.L3+shift, q.L3+shift+20, 0)
	}
	if q.Proto == wire.SCTP { // the receiver does not check the checksum of a quoted packet
		binary.BigEndian.PutUint16(e.Frame[q.L4+shift:], turned.SPort)
		binary.BigEndian.PutUint16(e.Frame[q.L4+shift+2:], turned.DPort)
	} else {
		m.reportTransport(e, q.L4, q.End, shift, was, turned, nil)
		seq := e.Frame[q.L4+shift+4:]
		binary.BigEndian.PutUint32(seq, binary.BigEndian.Uint32(seq)+s.quoteShift)
	}
	var before, after uint64
	if v.V6 {
		before, after = sumOfAddrs(&v.Src, &v.Dst), sumOfAddrs(&src, &to.Dst)
	}
	e.KeepSum("ICMP", v.L4+shift+2, before+wire.Sum(m.frame[v.L4:v.End]), v.L4+shift, v.End+shift, after)
}
