package wire

import (
	"bytes"
	"testing"
)

// An answer has the packet's IP version, whatever length the packet's header claims.
func TestTurn(t *testing.T) {
	ip := make([]byte, 28)
	ip[0], ip[1], ip[2], ip[3] = 0x40, 0x61, 0x62, 0x63
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2, 1, 2, 3, 4})
	Turn(ip)
	if want := []byte{0x40, 0x61, 0x62, 0x63}; !bytes.Equal(ip[:4], want) {
		t.Errorf("it begins with %x, not %x", ip[:4], want)
	}
	if want := []byte{10, 0, 0, 2, 10, 0, 0, 1, 3, 4, 1, 2}; !bytes.Equal(ip[12:24], want) {
		t.Errorf("addresses and ports are %x, not %x", ip[12:24], want)
	}
}

func TestPattern(t *testing.T) {
	b := make([]byte, 3, 10)
	for _, n := range []int{0, 5, 256, 1500} {
		if b = Pattern(b, n); len(b) != n {
			t.Fatalf("%d bytes, not %d", len(b), n)
		}
		for i := range b {
			if b[i] != byte(i*7) {
				t.Fatalf("byte %d of %d is %d", i, n, b[i])
			}
		}
	}
}
