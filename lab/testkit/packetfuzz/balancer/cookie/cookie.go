// Package cookie computes the numbers that the load balancer sends to clients of a
// frontend under pressure: cookies and challenges, as docs/decisions/0038-syn-floods.md
// specifies them. It shares no code with the programs.
//
// What does not belong here: when a number is sent or accepted, which is the model's, and
// how segments are read and written (segment).
package cookie

import (
	"encoding/binary"
	"math/bits"

	"github.com/fairlead/fairlead/lab/testkit/authtag"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Key is a key of SipHash.
type Key struct{ K0, K1 uint64 }

// Keys are the valid keys. The first one makes numbers, all verify them.
type Keys []Key

// NoScale is the scale of a SYN without that option.
const NoScale = 15

// Options are what a cookie preserves of a SYN.
type Options struct {
	MSS   uint16 // the maximum segment size
	Scale byte   // of windows, or NoScale
	SACK  bool   // selective acknowledgments
}

// sizes are the segment sizes that a cookie can store. Others are rounded down.
var sizes = [8]uint16{536, 1220, 1300, 1360, 1400, 1440, 1460, 8940}

// The contents of a cookie, from its lowest bit: two bits of the slot, then the options,
// then authentication.
const (
	optionsAt   = 2
	authenticAt = 10
)

// challengeKind is authenticated in place of options.
const challengeKind = 0x100

func (o Options) pack() (packed uint32) {
	for i, size := range sizes {
		if o.MSS >= size {
			packed = uint32(i) << 5
		}
	}
	packed |= uint32(o.Scale) << 1
	if o.SACK {
		packed |= 1
	}
	return packed
}

func unpack(packed uint32) Options {
	return Options{MSS: sizes[packed>>5&7], Scale: byte(packed >> 1 & 15), SACK: packed&1 != 0}
}

// Slot returns the slot of a time of the wall clock, in ns: 34 s.
func Slot(wall uint64) uint32 { return uint32(wall >> 35) }

// Make returns the cookie for a client's SYN with a sequence number.
func (k Keys) Make(t *wire.Tuple, seq uint32, o Options, slot uint32) uint32 {
	packed := o.pack()
	return k[0].authenticate(t, seq, slot, packed)<<authenticAt | packed<<optionsAt | slot&3
}

// Read returns the options in a cookie, if it is valid: of this slot or of one next to it.
func (k Keys) Read(t *wire.Tuple, seq, cookie, slot uint32) (o Options, valid bool) {
	packed := cookie >> optionsAt & 0xff
	for _, made := range []uint32{slot - 1, slot, slot + 1} {
		for _, key := range k {
			right := key.authenticate(t, seq, made, packed)<<authenticAt | packed<<optionsAt | made&3
			valid = valid || right == cookie
		}
	}
	return unpack(packed), valid
}

// Challenge returns the number that challenges the sender of a SYN: the next one below the
// SYN's whose lower half is authentic.
func (k Keys) Challenge(t *wire.Tuple, seq, slot uint32) uint32 {
	n := seq&^0xffff | k[0].authenticate(t, 0, slot, challengeKind)&0xffff
	if int32(seq-n) <= 0 {
		n -= 1 << 16
	}
	return n
}

// Answers reports whether a number is that of a challenge of this slot or the previous
// one.
func (k Keys) Answers(t *wire.Tuple, number, slot uint32) bool {
	for _, key := range k {
		for _, made := range []uint32{slot, slot - 1} {
			if uint16(number) == uint16(key.authenticate(t, 0, made, challengeKind)) {
				return true
			}
		}
	}
	return false
}

// authenticate is a hash of a client's packet, a slot and contents.
func (k Key) authenticate(t *wire.Tuple, seq, slot, contents uint32) uint32 {
	half := binary.LittleEndian.Uint64
	ports := uint64(bits.ReverseBytes16(t.SPort))<<16 | uint64(bits.ReverseBytes16(t.DPort))
	return uint32(k.hash(half(t.Src[:]), half(t.Src[8:]), half(t.Dst[:]), half(t.Dst[8:]),
		ports<<32|uint64(seq), uint64(slot)<<32|uint64(contents)))
}

// hash is SipHash-2-4 of a message of complete words.
func (k Key) hash(message ...uint64) uint64 {
	var b []byte
	for _, word := range message {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	return authtag.Sum(k.K0, k.K1, b)
}
