package model

import (
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/cookie"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/segment"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// The protection of frontends from floods of SYNs with forged sources. With nat and
// fullnat a client first returns a cookie; with direct return its address is validated by
// a challenge (docs/decisions/0038-syn-floods.md).

// protecting is what the programs store for it.
type protecting struct {
	wall    uint64 // ns by which the wall clock is ahead
	keys    cookie.Keys
	mss     [2]uint16 // reported to clients, IPv4 and IPv6
	Sources map[wire.Addr]*Source
	Events  map[uint32]*[SynEvents]uint64 // by frontend
}

// Source is a validated client.
type Source struct {
	Expires uint32
	Syns    uint16
}

const (
	sourceSYNs = 64
	sourceLife = 600 // seconds
)

// Events, in the order of enum syn_event.
const (
	cookieSent = iota
	cookieAccepted
	cookieRejected
	challengeSent
	challengeAnswered
	synAdmitted
	SynEvents
)

func (m *Model) event(f *programmed.Frontend, event int) {
	if m.Events[f.Id] == nil {
		m.Events[f.Id] = &[SynEvents]uint64{}
	}
	m.Events[f.Id][event]++
	m.saw.Saw(uint64(event) | 4<<20)
}

func (m *Model) slot() uint32 { return cookie.Slot(m.Ns + m.wall) }

// concerns reports whether a packet opens a connection, or may answer a challenge.
func (p *packet) concerns() bool {
	return p.Proto == wire.TCP && (p.flags&opens != 0 || p.flags&resets != 0 && p.flags&continues == 0)
}

// handling is what happens to a packet of no known flow.
type handling int

const (
	normal       handling = iota
	protected             // it is for the protection
	unremembered          // it is served without an entry, or not at all
)

func (m *Model) underPressure(p *packet, f *programmed.Frontend) handling {
	isHanded := p.flags&(ask|last) != 0 // the load balancer that sent it has checked it
	switch {
	case p.Proto != wire.TCP || !f.Pressure.Guarded && !f.Pressure.Checked:
		return normal
	case f.Nat && !isHanded && p.flags&admitted == 0:
		return protected
	case !f.Pressure.Guarded || f.Nat && !isHanded:
		return normal
	case f.Nat:
		return unremembered
	case p.concerns() && !isHanded && p.flags&admitted == 0:
		return protected
	case p.flags&opens != 0:
		return normal
	}
	return unremembered
}

// protectedPacket is a packet at the protection.
type protectedPacket struct {
	packet
	view     wire.View
	segment  segment.Segment
	frontend *programmed.Frontend
	tagged   bool
}

// protect handles a packet that may open a connection to a frontend under pressure, or
// that belongs to a connection which was opened with a cookie.
func (m *Model) protect(l3 int, v6 bool) int32 {
	s := &protectedPacket{tagged: l3 != 14}
	var ok bool
	if s.packet, ok = readPlain(m.frame, l3, v6); !ok || s.Proto != wire.TCP {
		return m.drop(synOdd)
	}
	s.view, _ = wire.ReadIP(m.frame, l3, len(m.frame), v6, false)
	if !s.malformed {
		s.segment = segment.Read(m.frame[s.view.L4:])
	}
	if m.config.Exact(&s.Tuple) == nil && !s.tagged {
		if e := m.answered(&s.Tuple); e != nil && e.Proxied != nil {
			return m.proxyBack(s, e)
		}
	}
	switch s.frontend, _ = m.config.Find(&s.Tuple); {
	case s.frontend == nil:
		return pass
	case s.malformed:
		return m.drop(malformed)
	case s.frontend.Nat && s.tagged: // the route within a VLAN is not known
		return m.admit()
	case s.frontend.Nat:
		return m.demandCookie(s)
	}
	return m.challenge(s)
}

// protectOdd does the same with a slow-path packet. e is its flow, if it is proxied.
func (m *Model) protectOdd(o *oddPacket, s *sending, e *Flow) int32 {
	if e == nil {
		return m.protect(o.view.L3, o.view.V6)
	}
	if s.server = m.config.Server(e.Server); o.admitted || o.tagged || !s.server.Used {
		return m.drop(synOdd)
	}
	switch w := m.way(s); {
	case w.kind == nowhere:
		return m.drop(noRoute)
	case o.length > w.mtu:
		return m.tooBig(s, w.mtu, 0)
	}
	return m.protect(o.view.L3, o.view.V6)
}

// admit lets a packet pass.
func (m *Model) admit() int32 { return m.odd(admitted) }

// challenge handles a packet to a frontend with direct return.
func (m *Model) challenge(s *protectedPacket) int32 {
	known := m.Sources[s.Src]
	switch {
	case s.flags&opens != 0 && known != nil && known.Syns > 0 && int32(known.Expires-m.now()) > 0:
		known.Syns--
		m.event(s.frontend, synAdmitted)
		return m.admit()
	case s.flags&opens != 0 && s.Src.Martian():
		return m.drop(martianSource)
	case s.flags&opens != 0:
		m.event(s.frontend, challengeSent)
		n := m.keys.Challenge(&s.Tuple, s.seq, m.slot())
		return m.answerWith(s, &segment.Segment{Flags: segment.SYN | segment.ACK, Seq: n, Ack: n})
	case !s.concerns() || !m.keys.Answers(&s.Tuple, s.seq, m.slot()):
		return m.admit()
	}
	m.Sources[s.Src] = &Source{Expires: m.now() + ticks(sourceLife), Syns: sourceSYNs}
	m.event(s.frontend, challengeAnswered)
	return Drop
}

// demandCookie handles a packet to a frontend with nat or fullnat.
func (m *Model) demandCookie(s *protectedPacket) int32 {
	f := s.frontend
	if e := m.Flows[s.Tuple]; e != nil {
		if _, keep := m.knows(e, &s.packet, f); keep != 0 && m.isProxied(e, f) {
			return m.proxyForth(s, e)
		}
	}
	switch {
	case s.flags&opens == 0:
		return m.checkCookie(s)
	case !f.Pressure.Guarded:
		return m.admit()
	case s.Src.Martian():
		return m.drop(martianSource)
	}
	m.event(f, cookieSent)
	in := &s.segment
	out := segment.Segment{
		Flags: segment.SYN | segment.ACK, Seq: m.keys.Make(&s.Tuple, in.Seq, in.Options, m.slot()), Ack: in.Seq + 1, Options: in.Options,
		Timestamps: in.Timestamps, TSValue: uint32(m.Ns >> 20), TSEcho: in.TSValue,
	}
	out.Options.MSS = m.mss[0]
	if s.view.V6 {
		out.Options.MSS = m.mss[1]
	}
	if out.Options.Scale != cookie.NoScale {
		out.Options.Scale = ownScale
	}
	return m.answerWith(s, &out)
}

// ownScale is the scale of windows that clients get.
const ownScale = 7

// checkCookie handles a packet of no known flow that opens none.
func (m *Model) checkCookie(s *protectedPacket) int32 {
	in, f := &s.segment, s.frontend
	var o cookie.Options
	valid := false
	if s.flags&continues != 0 && s.flags&finishes == 0 {
		if o, valid = m.keys.Read(&s.Tuple, in.Seq-1, in.Ack-1, m.slot()); !valid {
			// A probe of the zero window repeats the previous number.
			if o, valid = m.keys.Read(&s.Tuple, in.Seq, in.Ack-1, m.slot()); valid {
				in.Seq++
			}
		}
	}
	switch {
	case !valid && m.mayAsk(&s.packet):
		return m.ask(&s.packet, s.view.V6)
	case !valid && !f.Pressure.Guarded:
		return m.admit()
	case !valid:
		m.event(f, cookieRejected)
		m.drop(synCookie)
		return m.reject(s)
	}
	made := &opened{tag: hashes.FlowTag(&s.Tuple), proven: true}
	if made, _ = m.open(&s.packet, f, made, 0); made == nil {
		return m.reject(s)
	}
	m.event(f, cookieAccepted)
	p := &proxied{Cookie: in.Ack - 1, Seq: in.Seq - 1, Options: o, timestamps: in.Timestamps}
	if in.Timestamps {
		p.TsValue, p.TsEcho = in.TSValue, in.TSEcho
	}
	made.flow.Proxied = p
	return m.openServer(s, made.flow)
}

// reject answers a packet that was dropped with a reset, as a listening socket does.
func (m *Model) reject(s *protectedPacket) int32 {
	if s.flags&continues == 0 || s.flags&resets != 0 || s.Src.Martian() || !m.answers.take(m.Ns) {
		return Drop
	}
	return m.answerWith(s, &segment.Segment{Flags: segment.RST, Seq: s.ack})
}

// answerWith sends a segment to a packet's sender, in the name of its destination.
func (m *Model) answerWith(s *protectedPacket, out *segment.Segment) int32 {
	t := s.Turned()
	m.replace(s, out, &t, 64)
	copy(m.expected.Frame, m.frame[6:12])
	copy(m.expected.Frame[6:], m.frame[:6])
	return Tx
}

// replace makes a segment the expected output, after the packet's own Ethernet header.
// What follows the packet in a frame of the minimum size does not matter to its receiver,
// but is only what was there.
func (m *Model) replace(s *protectedPacket, out *segment.Segment, t *wire.Tuple, ttl byte) {
	e := m.change()
	l3 := s.view.L3
	e.Frame = out.AppendPacket(e.Frame[:l3], t, ttl)
	at, end := l3+headerBytes(s.view.V6), len(e.Frame)
	for len(e.Frame) < 60 {
		var b byte
		if len(e.Frame) < len(m.frame) {
			b = m.frame[len(e.Frame)]
		}
		e.Frame = append(e.Frame, b)
	}
	e.KeepSum("TCP", at+16, 0xffff, at, end, wire.Pseudo(t.Src, t.Dst, wire.TCP, end-at))
}
