package model

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// oddPacket is a packet on the slow path: with a VLAN tag, options or extension headers,
// a fragment, ICMP, too big.
type oddPacket struct {
	packet
	view     wire.View
	quoted   wire.View
	sender   wire.Addr
	vip      wire.Addr // its destination
	isVIP    bool
	tagged   bool
	isError  bool
	icmpType byte
	handed   flags
	admitted bool // it has passed the protection from SYN floods, and is charged
}

// odd handles any frame on the slow path. handed means that another load balancer has
// handed it over.
func (m *Model) odd(handed flags) int32 {
	o, ok := m.readOdd(handed)
	switch {
	case !ok && handed&^admitted != 0:
		return m.drop(malformed)
	case !ok, isMapped(o.view.V6, &o.view.Src, &o.view.Dst):
		return pass
	case o.vip == m.own(o.view.V6) && (o.view.Proto == wire.IPIP || o.view.Proto == wire.IPv6):
		return m.handedOver(&o.view, o.tagged)
	case o.isDiscovery() || !m.concerns(o):
		return pass
	case o.view.SourceRoute:
		return m.refuseOdd(o, sourceRoute)
	case o.view.Broken || o.view.IsBrokenFragment():
		return m.refuseOdd(o, malformed)
	}
	if verdict, over := m.flowOf(o); over {
		return verdict
	}
	rejected := m.Drops[noPort]
	verdict := m.serveOdd(o)
	switch rejected = m.Drops[noPort] - rejected; {
	case !o.view.More || o.view.Offset > 0:
	case rejected > 0:
		m.rejectFragment(o)
	default:
		m.rememberFragment(o)
	}
	return verdict
}

// readOdd reads the frame. It returns false if the frame has no IP packet.
func (m *Model) readOdd(handed flags) (*oddPacket, bool) {
	o := &m.work
	*o = oddPacket{handed: handed &^ admitted, admitted: handed&admitted != 0}
	b := m.frame
	kind, l3 := binary.BigEndian.Uint16(b[12:]), 14
	for range 2 {
		if kind != 0x8100 && kind != 0x88a8 {
			break
		}
		if l3+4 > len(b) {
			return o, false
		}
		kind = binary.BigEndian.Uint16(b[l3+2:])
		l3, o.tagged = l3+4, true
	}
	if kind != 0x0800 && kind != 0x86dd {
		return o, false
	}
	var ok bool
	if o.view, ok = wire.ReadIP(b, l3, len(b), kind == 0x86dd, false); !ok {
		return o, false
	}
	v := &o.view
	if options := v.L4 - v.L3 - 20; !v.V6 && options > 0 && !v.Broken {
		v.SourceRoute, v.Broken = wire.Options4(b[v.L3+20 : v.L4])
	}
	o.Tuple = wire.Tuple{Src: v.Src, Dst: v.Dst, Proto: v.Proto}
	o.length, o.ttl, o.tos = v.End-v.L3, v.TTL, v.TOS
	o.sender, o.vip = v.Src, v.Dst
	o.isVIP = m.config.Wide[o.vip] != nil
	if isICMP(v) && v.Offset == 0 && v.L4 < len(b) {
		o.icmpType = b[v.L4]
	}
	return o, true
}

func isICMP(v *wire.View) bool {
	if v.V6 {
		return v.Proto == wire.ICMPv6
	}
	return v.Proto == wire.ICMP
}

func isErrorType(kind byte, v6 bool) bool {
	if v6 {
		return kind >= 1 && kind <= 4
	}
	return kind == 3 || kind == 11 || kind == 12
}

func (o *oddPacket) isDiscovery() bool {
	return o.view.V6 && o.ttl == 255 && o.icmpType >= 133 && o.icmpType <= 137
}

// concerns reports whether a packet is for a VIP, may be an answer, or may be a router's
// error about a packet to a backend with nat, which goes to the client.
func (m *Model) concerns(o *oddPacket) bool {
	return o.isVIP || m.MayAnswer(&o.Tuple) || m.config.AnyNAT && isICMP(&o.view) && isErrorType(o.icmpType, o.view.V6)
}

// refuseOdd drops packets for a VIP, unless the VIP is also an address of this host:
// those are left to the kernel.
func (m *Model) refuseOdd(o *oddPacket, why reason) int32 {
	if !o.isVIP || m.staysHere(&o.Src, &o.vip, o.view.V6) {
		return pass
	}
	return m.drop(why)
}

// refuse is refuseOdd for the packet in work.
func (m *Model) refuse(why reason) int32 { return m.refuseOdd(&m.work, why) }

// unservedOdd handles a packet to a VIP that belongs to none of its frontends.
func (m *Model) unservedOdd(o *oddPacket) int32 {
	if o.ttl <= 1 {
		return pass
	}
	return m.refuseOdd(o, noFrontend)
}

// flowOf determines which flow a packet belongs to; over means that the packet has ended.
func (m *Model) flowOf(o *oddPacket) (verdict int32, over bool) {
	switch v := &o.view; {
	case isICMP(v):
		return m.icmp(o)
	case v.Offset > 0:
		return m.recall(o)
	case !wire.HasPorts(v.Proto):
		return m.unservedOdd(o), true
	}
	if why := m.readPorts(o); why != "" {
		return m.refuseOdd(o, why), true
	}
	return 0, false
}

var leastTransport = map[byte]int{wire.TCP: 20, wire.UDP: 8, wire.SCTP: 12}

// readPorts reads the transport header of a complete packet or a first fragment, and
// returns what is wrong with it.
func (m *Model) readPorts(o *oddPacket) reason {
	v := &o.view
	room := v.End - v.L4
	if room < leastTransport[v.Proto] {
		if v.IsFragment() {
			return tinyFragment
		}
		return malformed
	}
	b := m.frame[v.L4:]
	whole := !v.IsFragment()
	switch v.Proto {
	case wire.TCP:
		offset := int(b[12]>>4) * 4
		if offset < 20 || offset > room && whole {
			return malformed
		}
		o.flags = tcpFlags(b[13])
	case wire.UDP:
		length := int(binary.BigEndian.Uint16(b[4:]))
		if length < 8 || length > room && whole {
			return malformed
		}
	case wire.SCTP:
		if room < 16 {
			return malformed
		}
		o.flags = sctpFlags(b[12])
	}
	o.SPort, o.DPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	o.number(b, room)
	return ""
}

// serveOdd sends a packet of a known flow to its frontend's backend, or back to its
// client.
func (m *Model) serveOdd(o *oddPacket) int32 {
	if m.config.Exact(&o.Tuple) == nil && m.MayAnswer(&o.Tuple) {
		if f := m.answered(&o.Tuple); f != nil {
			return m.answerOdd(o, f)
		}
	}
	f, _ := m.config.Find(&o.Tuple)
	switch {
	case f == nil:
		return m.unservedOdd(o)
	case o.ttl <= 1:
		return pass
	case f.Guarded && !o.isError && !o.admitted && !m.guard(&o.packet, f, o.handed):
		return Drop
	}
	s := &sending{packet: &o.packet, view: &o.view, frontend: f, tagged: o.tagged, isError: o.isError, quoted: o.quoted, handed: o.handed}
	if !f.Stateful {
		if f.Pressure.Guarded && !o.isError && !o.admitted && o.concerns() {
			return m.protect(o.view.L3, o.view.V6)
		}
		if s.choice = m.choose(&o.packet, f); s.server == nil {
			return m.drop(noBackend)
		}
		s.fresh = s.fresh && o.view.Offset == 0
		return m.send(s)
	}
	o.flags |= o.handed
	if o.admitted {
		o.flags |= admitted
	}
	a := arrival{asks: func() int32 { return m.askOdd(o) }, protects: func(e *Flow) int32 { return m.protectOdd(o, s, e) }, isError: o.isError}
	if o.tagged {
		a.asks = nil
	}
	opened, verdict := m.stateful(&o.packet, f, a)
	if opened == nil {
		return verdict
	}
	s.choice, s.quoteShift = m.choiceOf(opened), opened.quoteShift
	if !s.server.Used {
		return m.drop(noBackend)
	}
	return m.send(s)
}

// icmp handles ICMP: echo requests, and errors, which belong to the flow of the packet
// that they quote.
func (m *Model) icmp(o *oddPacket) (verdict int32, over bool) {
	v := &o.view
	isError := isErrorType(o.icmpType, v.V6)
	isEcho := o.icmpType == 8 && !v.V6 || o.icmpType == 128 && v.V6
	switch {
	case v.End < v.L4+8 && v.Offset == 0:
		return m.refuseOdd(o, malformed), true
	case isError && !v.IsFragment():
		if !m.readQuoted(o) {
			return m.unservedOdd(o), true
		}
		o.isError = true
		return 0, false
	case !o.isVIP || v.Offset == 0 && !isEcho:
		return m.unservedOdd(o), true
	case v.Src.Martian():
		return m.drop(martianSource), true
	case m.staysHere(&o.Src, &o.vip, v.V6):
		return pass, true
	}
	return m.echo(o), true
}

// readQuoted reads the packet that an error is about. It returns false if that identifies
// no flow in the error's direction.
func (m *Model) readQuoted(o *oddPacket) bool {
	q, ok := wire.ReadIP(m.frame, o.view.L4+8, o.view.End, o.view.V6, true)
	if !ok || q.Broken || q.Offset > 0 || !wire.HasPorts(q.Proto) || q.L4+8 > q.End {
		return false
	}
	b := m.frame[q.L4:]
	o.quoted = q
	o.Tuple = wire.Tuple{Src: q.Dst, Dst: q.Src, SPort: binary.BigEndian.Uint16(b[2:]), DPort: binary.BigEndian.Uint16(b), Proto: q.Proto}
	o.flags = 0
	return q.Src == o.vip
}

// echo answers an echo request.
func (m *Model) echo(o *oddPacket) int32 {
	v := &o.view
	e := m.change()
	copy(e.Frame, m.frame[6:12])
	copy(e.Frame[6:], m.frame[:6])
	ip := e.Frame[v.L3:]
	m.putAddresses(ip, v.Dst, v.Src, v.V6)
	if v.V6 {
		ip[7] = 64
	} else {
		ip[8] = 64
		e.KeepSum("IPv4", v.L3+10, wire.Sum(m.frame[v.L3:v.L4]), v.L3, v.L4, 0)
	}
	if v.Offset == 0 {
		e.Frame[v.L4] = map[bool]byte{false: 0, true: 129}[v.V6]
		e.KeepSum("ICMP", v.L4+2, wire.Sum(m.frame[v.L4:v.L4+8]), v.L4, v.L4+8, 0)
	}
	return Tx
}
