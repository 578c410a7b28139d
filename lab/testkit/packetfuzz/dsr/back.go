package dsr

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// back handles a packet from a backend.
func (m *model) back() int32 {
	v := &m.outer
	switch v.Kind {
	case wire.Transport:
		if v.List > 0 {
			return untouched
		}
		return m.answer()
	case wire.Later:
		f := m.fragmentOf(v)
		if f == nil || f.fate != answerRestored {
			return m.pass("PASSED_FRAGMENT")
		}
		m.count("FRAGMENT_RESTORED")
		m.source = f.vip
		return m.answered(m.hook.place, func() {
			m.readdress(v, 14, v.L4, wire.Tuple{Src: f.vip, Dst: v.Dst}, false)
		})
	case wire.Error:
		return m.errorBack(m.hook.place)
	}
	return untouched
}

// answer restores the VIP in an answer.
func (m *model) answer() int32 {
	v := &m.outer
	t := v.Turned()
	f := m.table.find(&t)
	if f == nil {
		return untouched
	}
	if f.state&flowDoubted != 0 {
		attempt, may, ends := v.Answers(m.frame)
		if may && uint16(attempt) == f.attempt { // of a connection past the VIP
			if !ends {
				return untouched
			}
			m.table.forget(&t)
			return m.pass("FLOW_FORGOTTEN")
		}
	}
	if !v.Resets() {
		f.state &^= flowClientReset
		m.note(f, flowAnswered)
	} else {
		m.note(f, flowReset)
	}
	if v.Finishes() {
		m.note(f, flowServerFin)
	}
	if v.Fragment {
		m.rememberFragment(v, answerRestored, f.vip.Addr)
	}
	m.source = f.vip.Addr
	m.stuck = keepsPort(v, v.SPort, f.vip.Port)
	return m.answered(m.hook.place, func() {
		m.readdress(v, 14, v.L4, wire.Tuple{Src: f.vip.Addr, Dst: v.Dst, SPort: f.vip.Port, DPort: v.DPort, Proto: v.Proto}, true)
		if v.Accepts() {
			m.clamp(f.overhead)
		}
	})
}

// answered sends an answer out: from a pod by the kernel's routes, unless the kernel must
// send the backend an error; from the node itself by the route that it already has.
func (m *model) answered(place byte, restore func()) int32 {
	v := &m.outer
	stuck := m.stuck
	m.stuck = false
	if stuck && place == host {
		return m.drop("REWRITE")
	}
	if place == host {
		m.change()
		restore()
		return m.pass("RESTORED_STRAIGHT")
	}
	way, answer := m.wayTo(&m.source, &v.Dst, len(m.frame))
	switch {
	case answer == packetfuzz.RouteTooBig && (v.V6 || v.DF):
		return m.pass("PASSED_TOO_BIG")
	case v.TTL <= 1:
		return m.pass("PASSED_TTL")
	case stuck:
		return m.drop("REWRITE")
	}
	e := m.change()
	if answer == packetfuzz.RouteFound {
		if v.V6 {
			e.Frame[14+7]--
		} else {
			e.Frame[14+8]--
		}
	}
	restore()
	if answer != packetfuzz.RouteFound {
		return m.pass("RESTORED_PASSED")
	}
	m.count("RESTORED_STRAIGHT")
	m.way = way
	return packetfuzz.ActRedirect
}

// clamp lowers the client's segment size by what a load balancer adds.
func (m *model) clamp(overhead int) {
	l4 := m.outer.L4
	tcp := m.expected.Frame[l4:]
	end := min(int(tcp[12]>>4)*4, len(tcp))
	at := 20
	for range 8 {
		if at+4 > int(tcp[12]>>4)*4 || at+2 > len(tcp) || at > 60 {
			return
		}
		switch kind, length := tcp[at], tcp[at+1]; {
		case kind == 2 && length == 4:
			if at%2 != 0 || at+4 > end {
				return
			}
			if mss := int(binary.BigEndian.Uint16(tcp[at+2:])); mss >= 536+overhead {
				binary.BigEndian.PutUint16(tcp[at+2:], uint16(mss-overhead))
			}
			return
		case kind == 0:
			return
		case kind == 1:
			at++
		case length < 2:
			return
		default:
			at += int(length)
		}
	}
}

// errorBack rewrites an ICMP error of a backend, or of this node, about a client's
// packet, so that it comes from the VIP.
func (m *model) errorBack(place byte) int32 {
	v := &m.outer
	q, ok := v.ReadQuoted(m.frame)
	if !ok || q.Src != v.Dst {
		return untouched
	}
	f := m.table.find(&q.Tuple)
	if f == nil {
		return untouched
	}
	m.count("ERROR_RESTORED")
	m.source = f.vip.Addr
	return m.answered(place, func() { m.translate(v, &q, 0, false, f.vip, f.vip.Addr, v.Dst) })
}
