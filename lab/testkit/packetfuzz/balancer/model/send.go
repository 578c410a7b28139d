package model

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/segment"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// choice is the backend that gets a packet.
type choice struct {
	server *programmed.Server
	chain  []wire.Endpoint // other backends that may have the flow
	hash   uint32
	fresh  bool // to be counted as a new flow
	// natPort is fullnat's source port toward the backend.
	natPort uint16
}

// choose returns the backend of a packet's slot, without flow tracking.
func (m *Model) choose(p *packet, f *programmed.Frontend) (c choice) {
	c.hash = hashOf(f, p)
	c.fresh = p.flags&opens != 0
	if f.Slots == 0 {
		return c
	}
	first, chain := f.Slot(hashes.SlotOf(c.hash, f.Slots))
	if !c.fresh && chain > 0 {
		c.chain = m.config.Chain(chain)
	}
	switch {
	case first != 0 && m.config.Server(first).Used:
		c.server = m.config.Server(first)
	case first == 0 && len(c.chain) > 0: // all drain: use the slot's older owners
		c.server = &programmed.Server{Endpoint: c.chain[0], Used: true}
		c.chain = c.chain[1:]
	}
	return c
}

// sending is a packet that has a backend.
type sending struct {
	*packet
	view     *wire.View
	frontend *programmed.Frontend
	choice
	plain   bool
	tagged  bool
	isError bool
	quoted  wire.View
	handed  flags
	gone    bool // it was handled without being sent to its backend
	// change translates a segment's numbers; quoteShift is for the sequence number that an
	// error quotes.
	change     *segment.Shift
	quoteShift uint32
}

// way is a route by which a packet can leave.
type way struct {
	kind     wayKind
	ifindex  uint32
	mtu      int
	to, from [6]byte
	beyond   bool // there is a router in between
}

type wayKind int

const (
	byKernel wayKind = iota
	back             // through the device on which it arrived
	across           // through another device
	nowhere
)

// wayTo returns the route to an address for a packet of any length.
func (m *Model) wayTo(a *wire.Addr) way {
	r := m.routes.To(m.device.Index, !a.Is4(), *a)
	w := way{ifindex: r.Ifindex, mtu: int(r.MTU), to: r.Dest, from: r.Source, beyond: r.To != *a}
	switch {
	case r.Answer == packetfuzz.RouteBlackhole, r.Answer == packetfuzz.RouteUnreachable, r.Answer == packetfuzz.RouteProhibit:
		w.kind = nowhere
	case r.Answer != packetfuzz.RouteFound:
	case r.Ifindex == m.device.Index:
		w.kind = back
	case m.ports[r.Ifindex]:
		w.kind = across
	}
	if w.kind == byKernel {
		w.mtu = 0xffff // the kernel fragments, or reports that it must not
	}
	return w
}

// way returns the route to a packet's backend; for a packet with a VLAN tag, back to
// where it came from.
func (m *Model) way(s *sending) way {
	if s.tagged {
		return way{kind: back, ifindex: m.device.Index, mtu: m.device.MTU}
	}
	return m.wayTo(&s.server.Addr)
}

// leave is the verdict for a route.
func (m *Model) leave(w way) int32 {
	switch w.kind {
	case back:
		return Tx
	case across:
		m.Egress = w.ifindex
		return Redirect
	}
	return pass
}

// send sends a packet to its backend in its frontend's forwarding mode.
func (m *Model) send(s *sending) int32 {
	var verdict int32
	switch s.frontend.Method {
	case service.Tunnel:
		verdict = m.tunnel(s, s.frontend.Encapsulation == service.GUE)
	case service.NAT, service.FullNAT:
		verdict = m.translate(s)
	default:
		verdict = m.direct(s)
	}
	if !s.gone && (verdict == pass || verdict == Tx || verdict == Redirect) {
		m.count(s)
	}
	return verdict
}

// count counts a packet that was sent to a backend.
func (m *Model) count(s *sending) {
	c := m.counts[s.frontend.Id]
	c.packets++
	c.bytes += uint64(s.length & 0xffff)
	if s.fresh {
		c.flows++
	}
	m.counts[s.frontend.Id] = c
}

// addresses writes the Ethernet addresses of an outgoing packet.
func (m *Model) addresses(b []byte, s *sending, w way) {
	switch {
	case s.tagged:
		copy(b, m.frame[6:12])
		copy(b[6:], m.frame[:6])
	case w.kind != byKernel:
		copy(b, w.to[:])
		copy(b[6:], w.from[:])
	}
}

func headerBytes(v6 bool) int {
	if v6 {
		return 40
	}
	return 20
}

// tunnel encapsulates a packet for the backend.
func (m *Model) tunnel(s *sending, gue bool) int32 {
	outer6 := !s.server.Addr.Is4()
	extra := headerBytes(outer6) + wire.ListBytes(len(s.chain), outer6)
	if gue {
		extra = headerBytes(outer6) + 12 + wire.GUEListBytes(len(s.chain), false, outer6)
	}
	w := m.way(s)
	if w.kind == nowhere {
		return m.drop(noRoute)
	}
	if s.length+extra > w.mtu {
		return m.tooBig(s, w.mtu, extra)
	}
	if own := m.own(outer6); own.Zero() || own == emptyOf(outer6) {
		return m.drop(noSource)
	}
	e := m.change()
	l3 := s.view.L3
	e.Frame = append(e.Frame[:0], m.frame[:l3]...)
	m.addresses(e.Frame, s, w)
	kind := uint16(0x0800)
	if outer6 {
		kind = 0x86dd
	}
	binary.BigEndian.PutUint16(e.Frame[l3-2:], kind)
	e.Frame = m.outer(e.Frame, s, w, gue, outer6, extra)
	e.Frame = append(e.Frame, m.frame[l3:]...)
	return m.leave(w)
}

// outer writes everything that a tunnel prepends to a packet.
func (m *Model) outer(b []byte, s *sending, w way, gue, outer6 bool, extra int) []byte {
	at, inner := len(b), byte(wire.IPIP)
	if s.view.V6 {
		inner = wire.IPv6
	}
	proto, ttl := inner, byte(63)
	if w.kind == byKernel {
		ttl = 64
	}
	if gue {
		proto = wire.UDP
	}
	own := m.own(outer6)
	if outer6 {
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(s.tos)<<20|s.hash&0xfffff)
		b = binary.BigEndian.AppendUint16(b, uint16(s.length+extra-40))
		b = append(b, proto, ttl)
		b = append(append(b, own[:]...), s.server.Addr[:]...)
		if len(s.chain) > 0 && !gue {
			b[at+6] = wire.DstOpts
			b = wire.Option6(b, s.chain, proto)
		}
	} else {
		b = append(b, 0x45, s.tos)
		b = binary.BigEndian.AppendUint16(b, uint16(s.length+extra))
		b = append(b, 0, 0, 0x40, 0, ttl, proto, 0, 0)
		b = append(append(b, own[12:]...), s.server.Addr[12:]...)
		if len(s.chain) > 0 && !gue {
			b = wire.Option4(b, s.chain)
			b[at] = 0x40 | byte((len(b)-at)/4)
		}
		binary.BigEndian.PutUint16(b[at+10:], ^wire.Fold(wire.Sum(b[at:])))
	}
	if gue {
		b = appendGUE(b, s, inner, s.length+extra-headerBytes(outer6), outer6)
	}
	return b
}

// guePort is the UDP port of GUE.
const guePort = 6080

func appendGUE(b []byte, s *sending, inner byte, length int, outer6 bool) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(49152+s.hash&0x3fff))
	b = binary.BigEndian.AppendUint16(b, guePort)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(b, 0, 0, byte(wire.GUEListBytes(len(s.chain), false, outer6)/4), inner, 0, 0)
	if len(s.chain) == 0 {
		return b
	}
	at := len(b)
	b = wire.List(append(b, 0x9e, byte(len(s.chain)), 0, 0), s.chain, outer6)
	for (len(b)-at)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// keepFrom is where the part of a packet begins that stays when the client's options are
// removed: after IPv4 options, and from a fragment header on.
func keepFrom(v *wire.View) int {
	if v.Fragment > 0 {
		return v.Fragment
	}
	return v.L4
}

// direct sends a packet with its own header: dsr-nat and dr.
func (m *Model) direct(s *sending) int32 {
	nat := s.frontend.Method == service.DSRNAT
	withOption := nat || s.frontend.Chance
	v, v6 := s.view, s.view.V6
	var list []wire.Endpoint
	stripped := 0
	if withOption {
		stripped = keepFrom(v) - v.L3 - headerBytes(v6)
		if len(s.chain) > 0 || (s.flags&opens != 0 || s.Proto == wire.UDP) && v.Offset == 0 && !s.isError {
			list = append(m.list[:0], wire.Endpoint{Addr: s.Dst, Port: s.DPort})
			list = append(list, s.chain...)
		}
	}
	more := wire.ListBytes(len(list), v6) - stripped
	w := m.way(s)
	if s.length+more > w.mtu && w.kind != nowhere && len(list) > 0 && s.Proto == wire.UDP {
		list, more = nil, -stripped // a full datagram has no list: its flow is known from others
	}
	switch {
	case w.kind == nowhere:
		return m.drop(noRoute)
	case s.length+more > w.mtu:
		return m.tooBig(s, w.mtu, more)
	case !nat && (s.tagged || w.kind == byKernel || w.beyond):
		return m.drop(noNeighbor)
	}
	to := s.Tuple
	if nat {
		to.Dst = s.server.Addr
		if !s.frontend.KeepPort {
			to.DPort = s.server.Port
		}
		if why := s.cannotRewrite(&to); why != "" {
			return m.drop(why)
		}
	}
	m.rewrite(s, to, list, stripped, w, false)
	return m.leave(w)
}

// cannotRewrite returns why a packet cannot get other ends: the checksum of SCTP covers
// the ports and data in other fragments.
func (s *sending) cannotRewrite(to *wire.Tuple) reason {
	if s.Proto == wire.SCTP && !s.isError && s.view.Offset == 0 && s.view.More && (s.SPort != to.SPort || s.DPort != to.DPort) {
		return sctpFragment
	}
	return ""
}

// translate sends a packet with nat or fullnat.
func (m *Model) translate(s *sending) int32 {
	w := m.way(s)
	switch {
	case w.kind == nowhere:
		return m.drop(noRoute)
	case s.length > w.mtu:
		return m.tooBig(s, w.mtu, 0)
	}
	to := s.Tuple
	to.Dst, to.DPort = s.server.Addr, m.serverPort(s.server, s.DPort)
	if s.frontend.Full {
		to.Src, to.SPort = m.own(s.view.V6), s.natPort
	}
	if why := s.cannotRewrite(&to); why != "" {
		return m.drop(why)
	}
	m.rewrite(s, to, nil, 0, w, s.frontend.Full)
	return m.leave(w)
}
