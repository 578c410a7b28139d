package packetfuzz

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Private maps are as large as the agent's, unless change makes them smaller; others are
// the agent's own.
func TestLoadSizes(t *testing.T) {
	hash := func(name string, most uint32) *ebpf.MapSpec {
		return &ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: most}
	}
	live := map[string]*ebpf.Map{}
	for _, name := range []string{"shared", "small", "same"} {
		m, err := ebpf.NewMap(hash(name, 1000))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		live[name] = m
	}
	spec := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{"shared": hash("shared", 1), "small": hash("small", 1), "same": hash("same", 1)},
		Programs: map[string]*ebpf.ProgramSpec{"p": {Name: "p", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, 1).WithSymbol("p"), asm.Return(),
		}}},
	}
	o, err := Load(spec, live, []string{"small", "same", "absent"}, func(s *ebpf.CollectionSpec) error {
		s.Maps["small"].MaxEntries = 8
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for name, want := range map[string]uint32{"shared": 1000, "small": 8, "same": 1000} {
		if got := o.Maps[name].MaxEntries(); got != want {
			t.Errorf("%s has room for %d, not %d", name, got, want)
		}
	}
	key, value := uint32(1), uint32(2)
	if err := o.Maps["shared"].Put(key, value); err != nil {
		t.Fatal(err)
	}
	if err := live["shared"].Lookup(key, &value); err != nil {
		t.Errorf("shared is another map: %v", err)
	}
}
