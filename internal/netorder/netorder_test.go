package netorder

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

func TestThereAndBack(t *testing.T) {
	for _, text := range []string{"10.1.1.1", "2001:db8::1", "::", "255.255.255.255"} {
		a := netip.MustParseAddr(text)
		if got := Addr(Words(a)); got != a {
			t.Errorf("%s came back as %s", a, got)
		}
	}
	for _, p := range []uint16{0, 80, 0x1234, 65535} {
		if got := Port(Port(p)); got != p {
			t.Errorf("port %d came back as %d", p, got)
		}
	}
}

// TestNetworkOrder checks that the bytes in memory are those of a packet.
func TestNetworkOrder(t *testing.T) {
	var b [16]byte
	for i, w := range Words(netip.MustParseAddr("10.1.2.3")) {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	if want := [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 1, 14: 2, 15: 3}; b != want {
		t.Errorf("got %v, want %v", b, want)
	}
	if Words(netip.Addr{}) != ([4]uint32{}) {
		t.Error("the zero Addr is not zeros")
	}
}
