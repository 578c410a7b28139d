package load_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/load"
	"github.com/fairlead/fairlead/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func spec(sizes map[string]uint32) *ebpf.CollectionSpec {
	s := &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{}}
	for name, size := range sizes {
		s.Maps[name] = &ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: size}
	}
	return s
}

// TestPin gives maps that are pinned another size.
func TestPin(t *testing.T) {
	folder, err := os.MkdirTemp("/sys/fs/bpf", "pin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	fits := map[string]load.Fit{"kept": load.Keep, "renewed": load.Renew, "same": load.Refuse, "refused": load.Refuse}
	open := func(s *ebpf.CollectionSpec) (*ebpf.Collection, error) {
		if err := load.Pin(s, folder, fits); err != nil {
			t.Fatal(err)
		}
		c, err := ebpf.NewCollectionWithOptions(s, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: folder}})
		if err == nil {
			t.Cleanup(c.Close)
		}
		return c, err
	}
	first, err := open(spec(map[string]uint32{"kept": 8, "renewed": 8, "same": 8, "refused": 8}))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range first.Maps {
		if err := m.Put(uint32(1), uint32(2)); err != nil {
			t.Fatal(err)
		}
	}
	second, err := open(spec(map[string]uint32{"kept": 16, "renewed": 16, "same": 8, "refused": 8}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		size uint32
		held error
	}{"kept": {8, nil}, "renewed": {16, ebpf.ErrKeyNotExist}, "same": {8, nil}, "refused": {8, nil}} {
		var v uint32
		m := second.Maps[name]
		if err := m.Lookup(uint32(1), &v); m.MaxEntries() != want.size || !errors.Is(err, want.held) {
			t.Errorf("%s has room for %d, and holds what it held: %v; want %v", name, m.MaxEntries(), err, want)
		}
	}
	_, err = open(spec(map[string]uint32{"kept": 8, "renewed": 16, "same": 8, "refused": 16}))
	if err := load.Explain(err, load.ErrVersion); !errors.Is(err, load.ErrVersion) || !errors.Is(err, ebpf.ErrMapIncompatible) {
		t.Errorf("a map of another size: %v", err)
	}
}

// TestExplain has the kernel refuse a program.
func TestExplain(t *testing.T) {
	_, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Return()}, // R0 is not set
	})
	if err := load.Explain(err, nil); err == nil || !strings.Contains(err.Error(), "needs Linux 6.1") || !strings.Contains(err.Error(), "R0") {
		t.Errorf("a bad program: %v", err)
	}
	if err := load.Explain(unix.EPERM, nil); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "needs root") {
		t.Errorf("without rights: %v", err)
	}
	if err := load.Explain(nil, nil); err != nil {
		t.Error(err)
	}
}
