package services

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// said is an ICMP error that a program generates.
type said int

const (
	unreachable said = iota
	expired
	tooBig
)

// isNobody reports whether no host has an address, so that no answer may be sent to it.
func isNobody(a *wire.Addr) bool {
	if a.Is4() {
		return a[12] == 0 || a[12] == 127 || a[12] >= 224
	}
	return a[0] == 0xff || a.Zero() || *a == wire.Addr{15: 1}
}

// header writes the IP header of an answer in place of the frame.
func (m *model) header(e *packetfuzz.Expected, proto byte, payload int, df bool) {
	v := &m.v
	b := e.Frame[:14]
	if v.V6 {
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(payload))
		b = append(append(append(b, proto, 64), v.Dst[:]...), v.Src[:]...)
	} else {
		b = append(b, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(20+payload))
		b = append(b, 0, 0, 0, 0, 64, proto, 0, 0)
		b = append(append(b, v.Dst[12:]...), v.Src[12:]...)
		if df {
			b[14+6] = 0x40
		}
		binary.BigEndian.PutUint16(b[24:], ^wire.Fold(wire.Sum(b[14:34])))
	}
	e.Frame = b
}

// answerReset answers a segment with a reset (RFC 9293, 3.10.7.1).
func (m *model) answerReset() int32 {
	v := &m.v
	if !v.Plain || isNobody(&v.Src) {
		return m.drop("NO_ANSWER")
	}
	tcp := m.frame[v.L4:]
	seq, ack, flags := uint32(0), uint32(0), byte(0x04)
	if v.Flags&0x10 != 0 {
		seq = binary.BigEndian.Uint32(tcp[8:])
	} else {
		flags |= 0x10
		ack = binary.BigEndian.Uint32(tcp[4:]) + uint32(v.Room) - uint32(tcp[12]>>4)*4 + uint32(v.Flags>>1&1) + uint32(v.Flags&1)
	}
	e := m.change()
	m.header(e, wire.TCP, 20, true)
	at := len(e.Frame)
	e.Frame = binary.BigEndian.AppendUint16(e.Frame, v.DPort)
	e.Frame = binary.BigEndian.AppendUint16(e.Frame, v.SPort)
	e.Frame = binary.BigEndian.AppendUint32(e.Frame, seq)
	e.Frame = binary.BigEndian.AppendUint32(e.Frame, ack)
	e.Frame = append(e.Frame, 0x50, flags, 0, 0, 0, 0, 0, 0)
	e.KeepSum("TCP", at+16, packetfuzz.Right, at, at+20, wire.Pseudo(v.Dst, v.Src, wire.TCP, 20))
	return m.bounce(e)
}

// answerError answers with an ICMP error.
func (m *model) answerError(what said, mtu uint32) int32 {
	v := &m.v
	if !v.Plain || isNobody(&v.Src) {
		return m.drop("NO_ANSWER")
	}
	quote := min(v.L4-14+v.Room, 128)
	e := m.change()
	quoted := append([]byte(nil), m.frame[14:14+quote]...)
	proto, kind, code := byte(wire.ICMP), byte(3), byte(3)
	switch {
	case v.V6:
		proto, kind, code = wire.ICMPv6, []byte{1, 3, 2}[what], []byte{4, 0, 0}[what]
	default:
		kind, code = []byte{3, 11, 3}[what], []byte{3, 0, 4}[what]
	}
	m.header(e, proto, 8+quote, false)
	at := len(e.Frame)
	e.Frame = append(e.Frame, kind, code, 0, 0)
	e.Frame = binary.BigEndian.AppendUint32(e.Frame, mtu)
	e.Frame = append(e.Frame, quoted...)
	var pseudo uint64
	if v.V6 {
		pseudo = wire.Pseudo(v.Dst, v.Src, wire.ICMPv6, 8+quote)
	}
	e.KeepSum("ICMP", at+2, packetfuzz.Right, at, at+8+quote, pseudo)
	return m.bounce(e)
}
