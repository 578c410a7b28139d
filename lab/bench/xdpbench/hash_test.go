package xdpbench

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
)

// The Go implementation must produce the same golden values: see
// TestAddrHashIsReproducible in package schedule.
func TestAddrHash(t *testing.T) {
	spec, err := loadHarness()
	if err != nil {
		t.Fatal(err)
	}
	program, err := ebpf.NewProgram(spec.Programs[harnessProgHashOfAddress])
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for a, want := range map[string]uint32{
		"10.1.1.1": 0x303ac0ec, "10.1.1.2": 0xa22f4f7e, "2001:db8:1::1": 0xc0da3035, "::": 0,
	} {
		b := netip.MustParseAddr(a).As16()
		got, err := program.Run(&ebpf.RunOptions{Data: b[:], Context: xdpMD{DataEnd: 16}})
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("addr_hash(%s) = %#x, want %#x", a, got, want)
		}
	}
}
