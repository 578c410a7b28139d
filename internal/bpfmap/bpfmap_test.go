package bpfmap_test

import (
	"maps"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/bpfmap"
)

func TestHold(t *testing.T) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, wanted := range []map[uint32]uint64{{}, {1: 10, 2: 20}, {2: 21, 3: 30}, {2: 21, 3: 30}, {1: 1, 2: 2, 3: 3, 4: 4},
		{5: 5, 6: 6, 7: 7, 8: 8}, // a full map
		{}} {
		if err := bpfmap.Hold(m, wanted); err != nil {
			t.Fatal(err)
		}
		held, err := bpfmap.Read[uint32, uint64](m)
		if err != nil || !maps.Equal(held, wanted) {
			t.Errorf("it holds %v, %v; want %v", held, err, wanted)
		}
	}
	if err := bpfmap.Hold(m, map[uint32]uint64{1: 1, 2: 2, 3: 3, 4: 4, 5: 5}); err == nil {
		t.Error("more entries than fit: no error")
	}
}
