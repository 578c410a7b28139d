package model

import (
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/cookie"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/segment"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Connections that were opened with a cookie: the client has other sequence numbers than
// the backend.

// proxied is what translates such a connection.
type proxied struct {
	Cookie, Seq     uint32 // the sequence numbers of our SYN-ACK and of the client's SYN
	Options         cookie.Options
	timestamps      bool
	TsValue, TsEcho uint32 // of the client's ACK
	Shift, TsShift  uint32 // from the backend's numbers to ours
	Scales          byte   // the backend's
	Answered        bool   // the backend has accepted
	plain           bool   // nothing is translated
}

// isProxied reports whether a flow of the current forwarding mode has translated numbers.
func (m *Model) isProxied(e *Flow, f *programmed.Frontend) bool {
	return f.Nat && e.Nat && e.Proxied != nil && (e.NatPort != 0) == f.Full
}

// toward returns a client's packet as the backend gets it.
func (m *Model) toward(s *protectedPacket, e *Flow) wire.Tuple {
	to := s.Tuple
	server := m.config.Server(e.Server)
	to.Dst, to.DPort = server.Addr, m.serverPort(server, s.DPort)
	if e.NatPort != 0 {
		to.Src, to.SPort = m.own(s.view.V6), e.NatPort
	}
	return to
}

// openServer sends the backend a SYN with the client's options, in place of a packet.
func (m *Model) openServer(s *protectedPacket, e *Flow) int32 {
	p := e.Proxied
	out := &segment.Segment{Flags: segment.SYN, Seq: p.Seq, Window: 0xffff, Options: p.Options, Timestamps: p.timestamps, TSValue: p.TsValue}
	to := m.toward(s, e)
	return m.leaveBuilt(s, out, &to, m.wayTo(&to.Dst))
}

// leaveBuilt sends a segment, in place of a packet, on its way.
func (m *Model) leaveBuilt(s *protectedPacket, out *segment.Segment, to *wire.Tuple, w way) int32 {
	if w.kind == nowhere {
		return m.drop(noRoute)
	}
	ttl := byte(63)
	if w.kind == byKernel {
		ttl = 64
	}
	m.replace(s, out, to, ttl)
	m.addresses(m.expected.Frame, &sending{}, w)
	return m.leave(w)
}

// proxyForth handles a client's packet.
func (m *Model) proxyForth(s *protectedPacket, e *Flow) int32 {
	p := e.Proxied
	if !p.Answered {
		return m.openServer(s, e)
	}
	to := m.toward(s, e)
	w := m.wayTo(&to.Dst)
	switch {
	case w.kind == nowhere:
		return m.drop(noRoute)
	case s.length > w.mtu:
		return m.odd(0)
	}
	m.sent(e, &s.packet, true)
	on := &sending{packet: &s.packet, view: &s.view}
	if !p.plain {
		on.change = &segment.Shift{Ack: -p.Shift, SACK: -p.Shift, TSEcho: -p.TsShift}
	}
	m.rewrite(on, to, nil, 0, w, false)
	return m.leave(w)
}

// proxyBack handles a backend's packet.
func (m *Model) proxyBack(s *protectedPacket, e *Flow) int32 {
	switch {
	case s.malformed:
		return m.drop(malformed)
	case s.ttl <= 1:
		return m.drop(ttlExpired)
	}
	m.came(e, &s.packet)
	in, p := &s.segment, e.Proxied
	accepts := in.Flags&segment.SYN != 0 && in.Flags&segment.ACK != 0
	m.saw.Saw(uint64(in.Flags&0x17)<<2 | boolBit(p.Answered)<<1 | boolBit(p.plain) | 6<<20)
	switch {
	case accepts && in.Ack != p.Seq+1: // to a SYN of the client itself
		p.plain, p.Answered = true, true
		return m.shiftBack(s, e)
	case accepts && p.Answered:
		return m.answerWith(s, p.completes(in))
	case accepts:
		p.learn(in)
		return m.sendBuiltBack(s, e, p.opensWindow(in))
	case p.Answered:
		return m.shiftBack(s, e)
	case in.Flags&segment.RST != 0:
		return m.sendBuiltBack(s, e, &segment.Segment{Flags: segment.RST | segment.ACK, Seq: p.Cookie + 1, Ack: p.Seq + 1})
	}
	return m.answerWith(s, &segment.Segment{Flags: segment.RST, Seq: in.Ack}) // an older connection
}

func boolBit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// learn takes the numbers of the backend's SYN-ACK.
func (p *proxied) learn(in *segment.Segment) {
	p.Answered = true
	p.Shift = p.Cookie - in.Seq
	if in.Timestamps {
		p.TsShift = p.TsEcho - in.TSValue
	}
	if in.Options.Scale != cookie.NoScale {
		p.Scales = in.Options.Scale
	}
}

// opensWindow is what the client gets for the backend's SYN-ACK.
func (p *proxied) opensWindow(in *segment.Segment) *segment.Segment {
	window := in.Window // never scaled in a SYN-ACK
	if p.Options.Scale != cookie.NoScale {
		window >>= ownScale
	}
	return &segment.Segment{
		Flags: segment.ACK, Seq: p.Cookie + 1, Ack: p.Seq + 1, Window: window,
		Timestamps: p.timestamps, TSValue: p.TsEcho, TSEcho: p.TsValue,
	}
}

// completes is the answer to a repeated SYN-ACK of the backend.
func (p *proxied) completes(in *segment.Segment) *segment.Segment {
	return &segment.Segment{
		Flags: segment.ACK, Seq: p.Seq + 1, Ack: in.Seq + 1, Window: 0xffff >> ownScale,
		Timestamps: in.Timestamps, TSValue: p.TsValue, TSEcho: in.TSValue,
	}
}

// window converts a backend's window.
func (p *proxied) window(n uint16) uint16 {
	if p.Options.Scale == cookie.NoScale {
		return n
	}
	return uint16(min(uint32(n)<<p.Scales>>ownScale, 0xffff))
}

// shiftBack sends a backend's packet to the client.
func (m *Model) shiftBack(s *protectedPacket, e *Flow) int32 {
	on := &sending{packet: &s.packet, view: &s.view, plain: true, change: &segment.Shift{}}
	if p := e.Proxied; !p.plain {
		on.change = &segment.Shift{Seq: p.Shift, TSValue: p.TsShift, Window: p.window}
	}
	return m.sendBack(on, e)
}

// sendBuiltBack sends a segment to the client in place of a backend's packet.
func (m *Model) sendBuiltBack(s *protectedPacket, e *Flow, out *segment.Segment) int32 {
	to := e.Tuple.Turned()
	w, _ := m.wayBack(&sending{packet: &s.packet}, &to.Dst)
	return m.leaveBuilt(s, out, &to, w)
}
