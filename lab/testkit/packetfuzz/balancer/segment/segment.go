// Package segment reads, builds and changes TCP segments for the balancer's model:
// headers with their options, where numbers of a connection are translated.
//
// What does not belong here: which segment is sent when, which is the model's.
package segment

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/cookie"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Flags of a TCP header.
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	ACK = 0x10
)

// Kinds of options.
const (
	end           = 0
	nop           = 1
	mss           = 2
	scale         = 3
	sackPermitted = 4
	sack          = 5
	timestamps    = 8
)

// Segment is a TCP header.
type Segment struct {
	Seq, Ack uint32
	Flags    byte
	Window   uint16
	// Options of a SYN; the defaults without any.
	Options cookie.Options
	// Timestamps: the segment has them.
	Timestamps      bool
	TSValue, TSEcho uint32
}

// Read reads the segment at the beginning of b, whose header length is valid.
func Read(b []byte) Segment {
	s := Segment{
		Seq: binary.BigEndian.Uint32(b[4:]), Ack: binary.BigEndian.Uint32(b[8:]), Flags: b[13], Window: binary.BigEndian.Uint16(b[14:]),
		Options: cookie.Options{MSS: 536, Scale: cookie.NoScale},
	}
	eachOption(b, func(o []byte) {
		switch {
		case o[0] == mss && len(o) == 4:
			s.Options.MSS = binary.BigEndian.Uint16(o[2:])
		case o[0] == scale && len(o) == 3:
			s.Options.Scale = min(o[2], 14)
		case o[0] == sackPermitted:
			s.Options.SACK = true
		case o[0] == timestamps && len(o) == 10:
			s.Timestamps = true
			s.TSValue, s.TSEcho = binary.BigEndian.Uint32(o[2:]), binary.BigEndian.Uint32(o[6:])
		}
	})
	return s
}

// HeaderBytes is the length of the header at the beginning of b.
func HeaderBytes(b []byte) int { return int(b[12]>>4) * 4 }

// eachOption calls f for each option of a header, until one has an impossible length.
func eachOption(b []byte, f func(o []byte)) {
	b = b[20:HeaderBytes(b)]
	for len(b) > 0 && b[0] != end {
		if b[0] == nop {
			b = b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return
		}
		f(b[:b[1]])
		b = b[b[1]:]
	}
}

// Shift is what is added to the numbers of a segment.
type Shift struct {
	Seq, Ack, SACK, TSValue, TSEcho uint32
	// Window converts the window; nil leaves it.
	Window func(uint16) uint16
}

// Apply changes a segment, except its checksum.
func (s *Shift) Apply(b []byte) {
	add := func(b []byte, n uint32) { binary.BigEndian.PutUint32(b, binary.BigEndian.Uint32(b)+n) }
	add(b[4:], s.Seq)
	if b[13]&ACK != 0 {
		add(b[8:], s.Ack)
	}
	if s.Window != nil {
		binary.BigEndian.PutUint16(b[14:], s.Window(binary.BigEndian.Uint16(b[14:])))
	}
	eachOption(b, func(o []byte) {
		switch {
		case o[0] == timestamps && len(o) == 10:
			add(o[2:], s.TSValue)
			add(o[6:], s.TSEcho)
		case o[0] == sack:
			for edge := o[2:min(len(o), 34)]; len(edge) >= 4; edge = edge[4:] { // of four ranges
				add(edge, s.SACK)
			}
		}
	})
}

// AppendPacket appends an IP packet with a segment and no data. The checksum of TCP is
// left zero: it is at an offset of 16 in the segment.
func (s *Segment) AppendPacket(b []byte, t *wire.Tuple, ttl byte) []byte {
	tcp := s.append(nil, t)
	if t.Dst.Is4() {
		at := len(b)
		b = append(b, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(20+len(tcp)))
		b = append(b, 0, 0, 0x40, 0, ttl, wire.TCP, 0, 0)
		b = append(append(b, t.Src[12:]...), t.Dst[12:]...)
		binary.BigEndian.PutUint16(b[at+10:], ^wire.Fold(wire.Sum(b[at:])))
		return append(b, tcp...)
	}
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(tcp)))
	b = append(append(append(b, wire.TCP, ttl), t.Src[:]...), t.Dst[:]...)
	return append(b, tcp...)
}

func (s *Segment) append(b []byte, t *wire.Tuple) []byte {
	b = binary.BigEndian.AppendUint16(b, t.SPort)
	b = binary.BigEndian.AppendUint16(b, t.DPort)
	b = binary.BigEndian.AppendUint32(b, s.Seq)
	b = binary.BigEndian.AppendUint32(b, s.Ack)
	b = append(b, 0, s.Flags)
	b = binary.BigEndian.AppendUint16(b, s.Window)
	b = append(b, 0, 0, 0, 0)
	if s.Flags&SYN != 0 && s.Options.MSS > 0 {
		b = s.appendOpening(b)
	} else if s.Timestamps {
		b = s.appendTimestamps(append(b, nop, nop))
	}
	b[12] = byte(len(b)/4) << 4
	return b
}

// appendOpening appends the options of a SYN or SYN-ACK, each in words.
func (s *Segment) appendOpening(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(append(b, mss, 4), s.Options.MSS)
	permitted := []byte{nop, nop}
	if s.Options.SACK {
		permitted = []byte{sackPermitted, 2}
	}
	if s.Timestamps {
		b = s.appendTimestamps(append(b, permitted...))
	} else {
		b = append(append(b, nop, nop), permitted...)
	}
	if s.Options.Scale == cookie.NoScale {
		return append(b, nop, nop, nop, nop)
	}
	return append(b, nop, scale, 3, s.Options.Scale)
}

func (s *Segment) appendTimestamps(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, timestamps, 10), s.TSValue)
	return binary.BigEndian.AppendUint32(b, s.TSEcho)
}
