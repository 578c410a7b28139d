package packetfuzz

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// headers is how far into a frame most changes go, because payloads do not matter.
const headers = 14 + 8 + 40 + 124 + 40 + 40

// meaning are bytes that have a meaning for some parser.
var meaning = []byte{0, 1, 2, 4, 5, 6, 7, 8, 17, 41, 43, 44, 50, 51, 58, 60, 132, 0x40, 0x44, 0x45, 0x46, 0x4f, 0x60, 0x7f, 0x80, 0x81, 0x86, 0x88, 0x9e, 0x1e, 0xdd, 0xff}

// mutate changes a case in a few ways. other is another case to copy from.
func mutate(rng *rand.Rand, c, other *Case, maxFrame int) {
	for range 1 + rng.IntN(4) {
		if len(c.Steps) == 0 {
			return
		}
		i := rng.IntN(len(c.Steps))
		s := &c.Steps[i]
		switch n := rng.IntN(16); {
		case n < 9 && s.Kind == Packet:
			s.Frame = mutateFrame(rng, s.Frame, maxFrame)
		case n < 9 && s.Kind == Wait:
			s.Arg = RandomWait(rng)
		case n == 9 && len(c.Steps) < MaxSteps:
			c.insert(rng.IntN(len(c.Steps)+1), *s)
		case n == 10 && len(c.Steps) > 1:
			c.Steps = slices.Delete(c.Steps, i, i+1)
		case n == 11:
			j := rng.IntN(len(c.Steps))
			c.Steps[i], c.Steps[j] = c.Steps[j], c.Steps[i]
		case n == 12 && len(other.Steps) > 0 && len(c.Steps) < MaxSteps:
			c.insert(rng.IntN(len(c.Steps)+1), other.Steps[rng.IntN(len(other.Steps))])
		case n == 13 && len(other.Steps) > 0:
			c.splice(rng, other)
		case n == 14 && len(c.Steps) < MaxSteps:
			c.insert(rng.IntN(len(c.Steps)+1), Step{Kind: Wait, Arg: RandomWait(rng), Ticks: uint32(rng.IntN(3))})
		case n == 15 && s.Kind == Packet && len(other.Steps) > 0:
			crossFrames(rng, s.Frame, other.Steps[rng.IntN(len(other.Steps))].Frame)
		}
	}
}

// insert inserts a copy of a step.
func (c *Case) insert(at int, s Step) {
	s.Frame = slices.Clone(s.Frame)
	c.Steps = slices.Insert(c.Steps, at, s)
}

// splice replaces the end of a case with the end of another.
func (c *Case) splice(rng *rand.Rand, other *Case) {
	c.Steps = c.Steps[:1+rng.IntN(len(c.Steps))]
	for _, s := range other.Steps[rng.IntN(len(other.Steps)):] {
		if len(c.Steps) == MaxSteps {
			return
		}
		c.insert(len(c.Steps), s)
	}
}

// RandomWait returns a time to wait: from an imperceptible one to some that exceed
// timeouts.
func RandomWait(rng *rand.Rand) uint64 {
	const second = 1_000_000_000
	switch rng.IntN(4) {
	case 0:
		return rng.Uint64N(second)
	case 1:
		return rng.Uint64N(20 * second)
	case 2:
		return []uint64{10, 28, 56, 60, 61, 120, 129, 200, 280, 300, 301, 840, 900, 901}[rng.IntN(14)] * second
	}
	return rng.Uint64N(1000 * second)
}

// place returns an offset in a frame, most likely one in its headers.
func place(rng *rand.Rand, n int) int {
	switch {
	case n <= 14 || rng.IntN(24) == 0:
		return rng.IntN(n)
	case rng.IntN(3) > 0:
		return 14 + rng.IntN(min(n, 14+60)-14)
	}
	return 14 + rng.IntN(min(n, headers)-14)
}

// mutateFrame damages a frame in a few places.
func mutateFrame(rng *rand.Rand, b []byte, maxFrame int) []byte {
	for range 1 + rng.IntN(3) {
		if len(b) < 15 {
			return b
		}
		at := place(rng, len(b))
		switch rng.IntN(9) {
		case 0:
			b[at] ^= 1 << rng.IntN(8)
		case 1:
			b[at] = byte(rng.Uint32())
		case 2:
			b[at] = meaning[rng.IntN(len(meaning))]
		case 3:
			b[at] += byte(1 + 254*rng.IntN(2)) // increment or decrement
		case 4:
			if at &^= 1; at+2 <= len(b) {
				binary.BigEndian.PutUint16(b[at:], binary.BigEndian.Uint16(b[at:])+uint16(rng.IntN(17))-8)
			}
		case 5: // bytes from elsewhere
			from, n := place(rng, len(b)), 1<<rng.IntN(5)
			copy(b[at:], slices.Clone(b[from:min(len(b), from+n)]))
		case 6:
			return b[:max(14, at)]
		case 7: // insert bytes
			if n := 1 << rng.IntN(6); len(b)+n <= maxFrame {
				b = slices.Insert(b, at, make([]byte, n)...)
			}
		case 8: // delete bytes
			if at = max(at, 14); at < len(b) {
				b = slices.Delete(b, at, min(len(b), at+1<<rng.IntN(6)))
			}
		}
	}
	return b
}

// crossFrames copies some bytes of another frame to the same place in this one.
func crossFrames(rng *rand.Rand, b, other []byte) {
	n := min(len(b), len(other))
	if n < 15 {
		return
	}
	at := place(rng, n)
	copy(b[at:min(n, at+1<<rng.IntN(6))], other[at:])
}
