package packetfuzz

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Expected is the frame that a model expects as output. A model writes it byte by byte,
// except for checksums: for these it only states what they cover, before and after, and
// Compare computes both sums. So no model has to repeat how a program computes them.
type Expected struct {
	Frame  []byte
	fields []field
	sums   []sum
}

// field is a place where the program's own bytes are accepted.
type field struct{ at, bytes int }

// sum is a sum that must be the same as before.
type sum struct {
	what     string
	before   uint64
	from, to int
	pseudo   uint64
	at       int
	udp      bool
	crc      bool
}

// Begin starts with a copy of a frame.
func (e *Expected) Begin(frame []byte) {
	e.Frame = append(e.Frame[:0], frame...)
	e.fields, e.sums = e.fields[:0], e.sums[:0]
}

// Believe accepts some bytes as the program has written them.
func (e *Expected) Believe(at, bytes int) { e.fields = append(e.fields, field{at, bytes}) }

// Right is the sum over data that includes a correct checksum.
const Right = 0xffff

// KeepSum requires that the checksum at `at` makes the sum over bytes from..to, plus
// pseudo (a pseudo-header), the same as before the change: off by as much as before, if
// it was wrong.
func (e *Expected) KeepSum(what string, at int, before uint64, from, to int, pseudo uint64) {
	e.Believe(at, 2)
	e.sums = append(e.sums, sum{what: what, before: before, from: from, to: to, pseudo: pseudo, at: at})
}

// KeepUDP is KeepSum for UDP, where zero means that there is no checksum.
func (e *Expected) KeepUDP(what string, at int, was uint16, before uint64, from, to int, pseudo uint64) {
	if was == 0 {
		return
	}
	e.KeepSum(what, at, before, from, to, pseudo)
	e.sums[len(e.sums)-1].udp = true
}

// KeepSCTP requires that the checksum of an SCTP packet is as right or wrong as before
// (wire.SCTPError).
func (e *Expected) KeepSCTP(at int, before uint32, end int) {
	e.Believe(at+8, 4)
	e.sums = append(e.sums, sum{what: "SCTP", before: uint64(before), from: at, to: end, crc: true})
}

// Compare returns an error that describes what is wrong with a frame.
func (e *Expected) Compare(out []byte) error {
	if len(out) != len(e.Frame) {
		return fmt.Errorf("got %d bytes, want %d\n%s", len(out), len(e.Frame), e.show(out))
	}
	for _, f := range e.fields {
		if f.at+f.bytes <= len(out) {
			copy(e.Frame[f.at:f.at+f.bytes], out[f.at:])
		}
	}
	if !bytes.Equal(out, e.Frame) {
		at := 0
		for out[at] == e.Frame[at] {
			at++
		}
		return fmt.Errorf("byte %d is %#x, want %#x\n%s", at, out[at], e.Frame[at], e.show(out))
	}
	for i := range e.sums {
		if err := e.sums[i].check(out); err != nil {
			return fmt.Errorf("%w\n%s", err, e.show(out))
		}
	}
	return nil
}

func (s *sum) check(out []byte) error {
	if s.crc {
		if after := wire.SCTPError(out[s.from:s.to]); uint64(after) != s.before {
			return fmt.Errorf("checksum of SCTP at %d: wrong by %#x before, by %#x after", s.from+8, s.before, after)
		}
		return nil
	}
	after := wire.Sum(out[s.from:s.to]) + s.pseudo
	switch {
	case !wire.Same(s.before, after):
		return fmt.Errorf("checksum of %s at %d: the sum was %#x and is %#x", s.what, s.at, wire.Fold(s.before), wire.Fold(after))
	case s.udp && binary.BigEndian.Uint16(out[s.at:]) == 0:
		return fmt.Errorf("checksum of %s at %d: it was removed", s.what, s.at)
	}
	return nil
}

func (e *Expected) show(out []byte) string { return fmt.Sprintf("want %x\n got %x", e.Frame, out) }
