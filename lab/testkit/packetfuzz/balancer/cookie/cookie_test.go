package cookie

import (
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

var tuple = wire.Tuple{Src: wire.From4([]byte{192, 168, 0, 1}), Dst: wire.From4([]byte{10, 1, 1, 1}), SPort: 1024, DPort: 80, Proto: wire.TCP}

// The hash is SipHash-2-4: the authors' vector of eight bytes.
func TestHash(t *testing.T) {
	k := Key{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	if is, want := k.hash(0x0706050403020100), uint64(0x93f5f5799a932462); is != want {
		t.Errorf("got %#x, want %#x", is, want)
	}
}

// A cookie is valid in its slot and the slots next to it, with every key, for its own
// connection.
func TestCookie(t *testing.T) {
	a, b := Key{1, 2}, Key{3, 4}
	o := Options{MSS: 1399, Scale: 7, SACK: true}
	made := Keys{a}.Make(&tuple, 5, o, 9)
	other := tuple
	other.SPort++
	for _, c := range []struct {
		keys      Keys
		t         wire.Tuple
		seq, slot uint32
		valid     bool
	}{
		{Keys{a}, tuple, 5, 9, true}, {Keys{b, a}, tuple, 5, 10, true}, {Keys{a}, tuple, 5, 8, true},
		{Keys{a}, tuple, 5, 11, false}, {Keys{a}, tuple, 5, 7, false}, {Keys{a}, tuple, 5, 13, false},
		{Keys{b}, tuple, 5, 9, false}, {Keys{a}, other, 5, 9, false}, {Keys{a}, tuple, 6, 9, false},
	} {
		read, valid := c.keys.Read(&c.t, c.seq, made, c.slot)
		if valid != c.valid || valid && read != (Options{MSS: 1360, Scale: 7, SACK: true}) {
			t.Errorf("%+v: got %+v, %v", c, read, valid)
		}
	}
}

// A challenge is below the client's number by at most 2^16, and valid in its slot and the
// next one.
func TestChallenge(t *testing.T) {
	k := Keys{{1, 2}}
	for _, seq := range []uint32{0, 1, 0xffff, 0x10000, 0x12345678, ^uint32(0)} {
		n := k.Challenge(&tuple, seq, 9)
		if below := seq - n; below == 0 || below > 1<<16 {
			t.Errorf("%#x is challenged by %#x", seq, n)
		}
		for slot, valid := range map[uint32]bool{8: false, 9: true, 10: true, 11: false} {
			if k.Answers(&tuple, n, slot) != valid {
				t.Errorf("%#x in slot %d: want %v", n, slot, valid)
			}
		}
	}
}
