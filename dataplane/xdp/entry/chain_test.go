package entry

import (
	"net/netip"
	"slices"
	"testing"
)

func TestChainsAreRendered(t *testing.T) {
	addrs := []netip.AddrPort{
		1: netip.MustParseAddrPort("10.1.2.3:258"), 2: netip.MustParseAddrPort("10.4.5.6:65535"),
		3: netip.MustParseAddrPort("[fd00::1]:80"), 4: netip.MustParseAddrPort("[fd00::2]:81"),
	}
	of := func(ids ...int) (all []netip.AddrPort) {
		for _, id := range ids {
			all = append(all, addrs[id])
		}
		return all
	}
	v4 := Chain(of(1, 2))
	if want := "\x0a\x01\x02\x03\x01\x02\x0a\x04\x05\x06\xff\xff"; v4.N != 2 || v4.V6 != 0 || string(v4.Bytes[:12]) != want {
		t.Errorf("IPv4: %+v", v4)
	}
	// 0a01+0203+0102+0a04+0506+ffff, in network order, is 11c0f.
	if sum := v4.Sum>>8 | v4.Sum<<8; sum != 0x1c0f+1 {
		t.Errorf("the sum is %#x", sum)
	}
	v6 := Chain(of(3, 4, 3, 4, 3))
	if v6.N != 5 || v6.V6 != 1 || v6.Bytes[16] != 0 || v6.Bytes[17] != 80 || v6.Bytes[18] != 0xfd || v6.Bytes[90] != 0 {
		t.Errorf("IPv6: %+v", v6)
	}
	for _, want := range [][]netip.AddrPort{of(1), of(2, 1), of(3, 4, 3, 4, 3)} {
		if got := Owners(Chain(want)); !slices.Equal(got, want) {
			t.Errorf("%v came back as %v", want, got)
		}
	}
}
