package services

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// way returns the kernel's route from an address to another for a packet of this length;
// 0 means that it uses the frame and the device.
func (m *model) way(src, dst *wire.Addr, bytes int) (redirection, int32) {
	v6 := m.v.V6
	if v6 && (src.StaysOnLink() || dst.StaysOnLink()) {
		return redirection{}, packetfuzz.RouteNotForwarded
	}
	r := m.routes.To(m.hook.ifindex, v6, *dst)
	answer := r.Answer
	switch {
	case bytes > 0 && r.MTU > 0 && bytes > int(r.MTU) && (answer == packetfuzz.RouteFound || answer == packetfuzz.RouteNoNeighbor):
		m.mtu = r.MTU
		return redirection{}, packetfuzz.RouteTooBig
	case bytes == 0 && answer == packetfuzz.RouteFound && len(m.frame) > m.config.mtus[r.Ifindex]+18:
		return redirection{}, packetfuzz.RouteTooBig
	case answer == packetfuzz.RouteNoNeighbor:
		answer = packetfuzz.RouteFound
	}
	w := redirection{helper: packetfuzz.RedirectNeighbor, ifindex: r.Ifindex}
	w.family, w.to = r.NextHop(v6)
	return w, answer
}

func goesStraight(kind byte) bool {
	return kind&isMasked != 0 || kind&(isOwn|isBridged) != 0 && kind&isAnswer == 0
}

// leave is the last step of a packet with ports.
func (m *model) leave(h half) int32 {
	v := &m.v
	if v.Fragment {
		if v.Proto == wire.SCTP && (v.SPort != h.to.SPort || v.DPort != h.to.DPort) {
			return m.drop("SCTP_FRAGMENT")
		}
		m.rememberFragment(h)
	}
	switch {
	case h.kind&isAnswer != 0 && h.kind&isMasked != 0:
		m.count("ANSWERED_STRAIGHT")
	case h.kind&isAnswer != 0:
		m.count("ANSWERED")
	case goesStraight(h.kind):
		m.count("FORWARDED_STRAIGHT")
	default:
		m.count("FORWARDED")
	}
	return m.leaveChanged(h, func() { m.readdress(h.to, true) })
}

func (m *model) fragmentKey() fragmentKey {
	return fragmentKey{m.v.Src, m.v.Dst, m.v.ID, m.v.Proto, m.hook.place == leaving}
}

func (m *model) rememberFragment(h half) {
	h.seen = m.now()
	m.fragments[m.fragmentKey()] = &h
}

// later handles a fragment that is not the first: it gets the first one's translation.
func (m *model) later() int32 {
	h := m.fragments[m.fragmentKey()]
	if h == nil || m.now()-h.seen >= 56 {
		if m.hook.place == leaving {
			return untouched
		}
		return m.pass("FRAGMENT")
	}
	m.count("FRAGMENT")
	return m.leaveChanged(*h, func() { m.readdress(h.to, false) })
}

// leaveChanged sends a packet on after change.
func (m *model) leaveChanged(h half, change func()) int32 {
	if h.kind&isLooped == 0 && goesStraight(h.kind) {
		return m.leaveStraight(h, change)
	}
	e := m.change()
	change()
	switch {
	case h.kind&isLooped != 0:
		return m.bounce(e)
	case h.kind&(isOwn|isAnswer) == isOwn|isAnswer:
		return m.leaveInward(e, &h)
	}
	return untouched
}

// leaveStraight sends a packet past the kernel's routing.
func (m *model) leaveStraight(h half, change func()) int32 {
	v := &m.v
	own, cut := h.kind&isOwn != 0, h.kind&isCut != 0
	w, answer := m.way(&h.to.Src, &h.to.Dst, len(m.frame)-14)
	mayCut := !v.V6 && !v.DF
	isTransport := v.Kind == wire.Transport
	switch {
	case answer == packetfuzz.RouteTooBig && mayCut:
		cut = true
	case answer == packetfuzz.RouteTooBig && isTransport:
		m.count("TOO_BIG")
		return m.answerError(tooBig, m.mtu)
	case answer != packetfuzz.RouteFound:
		return m.drop("NO_WAY")
	}
	if !own && v.TTL <= 1 {
		m.count("EXPIRED")
		if isTransport {
			return m.answerError(expired, 0)
		}
		return packetfuzz.ActShot
	}
	if cut && v.Fragment && isTransport { // all fragments go where the packet is fragmented
		h.kind |= isCut
		m.rememberFragment(h)
	}
	e := m.change()
	change()
	if !own && !cut {
		hop := 14 + 8
		if v.V6 {
			hop = 14 + 7
		}
		e.Frame[hop]--
	}
	if !cut {
		m.redirect = w
		return packetfuzz.ActRedirect
	}
	clear(e.Frame[:12])
	m.redirect = redirection{helper: packetfuzz.Redirect, ifindex: 1, flags: 1}
	return packetfuzz.ActRedirect
}

// leaveInward makes the answer to a client on this node arrive on the device of the route
// to the service.
func (m *model) leaveInward(e *packetfuzz.Expected, h *half) int32 {
	w, answer := m.way(&h.to.Dst, &h.to.Src, 1)
	mac, ok := m.config.macs[w.ifindex]
	if answer != packetfuzz.RouteFound || w.ifindex == m.hook.ifindex || !ok {
		return untouched
	}
	copy(e.Frame, mac[:])
	clear(e.Frame[6:12])
	m.redirect = redirection{helper: packetfuzz.Redirect, ifindex: w.ifindex, flags: 1}
	return packetfuzz.ActRedirect
}

// bounce turns a frame around.
func (m *model) bounce(e *packetfuzz.Expected) int32 {
	copy(e.Frame, m.frame[6:12])
	copy(e.Frame[6:], m.frame[:6])
	m.redirect = redirection{helper: packetfuzz.Redirect, ifindex: m.hook.ifindex}
	if m.hook.place == leaving {
		m.redirect.flags = 1
	}
	return packetfuzz.ActRedirect
}

func (m *model) change() *packetfuzz.Expected {
	m.expected.Begin(m.frame)
	m.changed = true
	return &m.expected
}

// error handles an ICMP error about a packet of a flow, as it was on the wire.
func (m *model) error() int32 {
	v := &m.v
	q, ok := v.ReadQuoted(m.frame)
	if !ok || q.Src != v.Dst {
		return untouched
	}
	t := q.Turned()
	found := m.find(&t)
	if found == nil || !m.isPlaceOf(found.kind) {
		return untouched
	}
	h := *found
	before := h.to.Turned()
	before.Proto = q.Proto
	if v.Src != q.Dst && h.kind&(isMasked|isAnswer) != isMasked {
		h.to.Src = v.Src // other senders keep their own address
	}
	m.count("ERROR")
	return m.leaveChanged(h, func() { m.translate(&q, before, h.to.Src, h.to.Dst) })
}

func sumOfAddrs(t *wire.Tuple) uint64 { return wire.Sum(t.Src[:]) + wire.Sum(t.Dst[:]) }

// putAddresses writes the addresses of the frame's header.
func (m *model) putAddresses(src, dst wire.Addr) {
	v, ip := &m.v, m.expected.Frame[14:]
	if v.V6 {
		src.Put(ip[8:], true)
		dst.Put(ip[24:], true)
		return
	}
	src.Put(ip[12:], false)
	dst.Put(ip[16:], false)
	m.expected.KeepSum("IPv4", 24, wire.Sum(m.frame[14:v.L4]), 14, v.L4, 0)
}

// readdress gives the packet other ends.
func (m *model) readdress(to wire.Tuple, ports bool) {
	v, e := &m.v, &m.expected
	m.putAddresses(to.Src, to.Dst)
	if !ports {
		return
	}
	was, is := m.frame[v.L4:], e.Frame[v.L4:]
	binary.BigEndian.PutUint16(is, to.SPort)
	binary.BigEndian.PutUint16(is[2:], to.DPort)
	before, after := sumOfAddrs(&v.Tuple), sumOfAddrs(&to)
	switch v.Proto {
	case wire.TCP:
		e.KeepSum("TCP", v.L4+16, before+wire.Sum(was[:20]), v.L4, v.L4+20, after)
	case wire.UDP:
		e.KeepUDP("UDP", v.L4+6, binary.BigEndian.Uint16(was[6:]), before+wire.Sum(was[:8]), v.L4, v.L4+8, after)
	case wire.SCTP:
		if v.SPort != to.SPort || v.DPort != to.DPort {
			e.KeepSCTP(v.L4, wire.SCTPError(was[:v.Room]), v.L4+v.Room)
		}
	}
}

// translate turns a quoted packet into what it was before, and gives the error these
// addresses.
func (m *model) translate(q *wire.Quoted, is wire.Tuple, src, dst wire.Addr) {
	v, e := &m.v, &m.expected
	m.putAddresses(src, dst)
	if v.V6 {
		is.Src.Put(e.Frame[q.L3+8:], true)
		is.Dst.Put(e.Frame[q.L3+24:], true)
	} else {
		is.Src.Put(e.Frame[q.L3+12:], false)
		is.Dst.Put(e.Frame[q.L3+16:], false)
		e.KeepSum("the quoted IPv4", q.L3+10, wire.Sum(m.frame[q.L3:q.L3+20]), q.L3, q.L3+20, 0)
	}
	was, quoted := m.frame[q.L4:], e.Frame[q.L4:]
	binary.BigEndian.PutUint16(quoted, is.SPort)
	binary.BigEndian.PutUint16(quoted[2:], is.DPort)
	before, after := sumOfAddrs(&q.Tuple), sumOfAddrs(&is)
	switch {
	case q.Proto == wire.TCP && q.Room >= 18:
		e.KeepSum("the quoted TCP", q.L4+16, before+wire.Sum(was[:18]), q.L4, q.L4+18, after)
	case q.Proto == wire.UDP && q.Room >= 8:
		e.KeepUDP("the quoted UDP", q.L4+6, binary.BigEndian.Uint16(was[6:]), before+wire.Sum(was[:8]), q.L4, q.L4+8, after)
	}
	end := len(m.frame) - (len(m.frame)-v.L4)%2
	before, after = 0, 0
	if v.V6 {
		before, after = sumOfAddrs(&v.Tuple), wire.Sum(src[:])+wire.Sum(dst[:])
	}
	e.KeepSum("ICMP", v.L4+2, before+wire.Sum(m.frame[v.L4:end]), v.L4, end, after)
}
