package balancer

import (
	"bytes"
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/segment"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// What holds for every TCP packet, whatever the model says: an error in the model must not
// hide that the load balancer attacks somebody.

// grown is how much longer than its SYN a SYN-ACK may be: by its options.
const grown = 12

// leastFrame is the minimum size of a frame.
const leastFrame = 60

// checkAnswer checks a frame that left through the device on which another came.
func (t *Target) checkAnswer(in, out []byte) error {
	from, to, ok := bothSegments(in, out)
	if !ok || to.Src != from.Dst || to.Dst != from.Src || from.Src == from.Dst && samePorts(in[from.L4:], out[to.L4:]) {
		return nil // it was forwarded, or may have been
	}
	tcp := out[to.L4:]
	f, _ := t.config.Find(&wire.Tuple{Src: from.Src, Dst: from.Dst, SPort: binary.BigEndian.Uint16(tcp[2:]), DPort: binary.BigEndian.Uint16(tcp), Proto: wire.TCP})
	isBackend := t.model.MayAnswer(&wire.Tuple{Src: from.Src, Dst: from.Dst, Proto: wire.TCP})
	switch {
	case !bytes.Equal(in[:6], out[6:12]) || !bytes.Equal(in[6:12], out[:6]):
		return packetfuzz.Violated("the answer goes to another host\n in  %x\n out %x", in, out)
	case len(out) > max(len(in)+grown, leastFrame):
		return packetfuzz.Violated("the answer has %d bytes more\n in  %x\n out %x", len(out)-len(in), in, out)
	case from.Src.Martian():
		return packetfuzz.Violated("an address that no host has gets an answer\n in  %x\n out %x", in, out)
	case tcp[13]&segment.SYN != 0 && (in[from.L4+13]&(segment.SYN|segment.ACK) != segment.SYN || f == nil || !f.Pressure.Guarded):
		return packetfuzz.Violated("a SYN-ACK from no frontend under pressure, or not for a SYN\n in  %x\n out %x", in, out)
	case tcp[13]&segment.SYN == 0 && !isBackend && (f == nil || !f.Pressure.Guarded && !f.Pressure.Checked):
		return packetfuzz.Violated("an answer from no frontend under pressure\n in  %x\n out %x", in, out)
	}
	return nil
}

// samePorts reports whether two segments have the same ports. An answer has them swapped.
func samePorts(a, b []byte) bool { return bytes.Equal(a[:4], b[:4]) }

// bothSegments reads two frames, which both have to be TCP and not fragments.
func bothSegments(in, out []byte) (from, to wire.View, ok bool) {
	if from, ok = tcpIn(in); !ok {
		return from, to, false
	}
	to, ok = tcpIn(out)
	return from, to, ok
}

func tcpIn(frame []byte) (v wire.View, ok bool) {
	l3 := 14
	for l3 < 22 && l3 < len(frame) && (frame[l3-2] == 0x81 && frame[l3-1] == 0 || frame[l3-2] == 0x88 && frame[l3-1] == 0xa8) {
		l3 += 4
	}
	if l3 > len(frame) {
		return v, false
	}
	v, ok = wire.ReadIP(frame, l3, len(frame), frame[l3-2] == 0x86, false)
	return v, ok && !v.Broken && !v.IsFragment() && v.Proto == wire.TCP && v.Room() >= 20
}
